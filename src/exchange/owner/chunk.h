// Chunk: values of one owner that are sent in one message, and their coders.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <map>
#include <utility>
#include <vector>

#include "exchange/layout/range.h"
#include "exchange/wire/active_stream.h"

namespace thinwire {

// What a chunk holds of one stream: one frame.
struct ChunkPart {
  ActiveStream* stream = nullptr;
  Range range;        // in the stream
  size_t offset = 0;  // of its frame in the message
  Coder* coder = nullptr;
};

// One message: parts of the streams of one bucket, all of one owner.
struct Chunk {
  size_t bucket = 0;
  std::vector<ChunkPart> parts;
  size_t count = 0;  // values
  size_t size = 0;   // bytes
};

// One coder for each stream and length, which parts use in turn. A coder stays where it is.
class Coders {
 public:
  Coder* of(const ActiveStream& stream, size_t count);

 private:
  std::map<std::pair<const ActiveStream*, size_t>, Coder> coders_;
};

// Puts a part behind those that the chunk has. REQUIRES: a codec of fixed size.
void append_part(Chunk& chunk, ActiveStream& stream, Range range, Coders& coders);

}  // namespace thinwire
