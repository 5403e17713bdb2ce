// Chunk: makes the coders of its frames, and their places one after another.
// SPDX-License-Identifier: Apache-2.0
#include "exchange/owner/chunk.h"

#include "thinwire/frame.h"

namespace thinwire {

Coder* Coders::of(const ActiveStream& stream, size_t count) {
  const Codec& codec = stream.processors_codec();
  Coder& coder = coders_[{&stream, count}];
  if (coder.room == 0) {
    const StreamSpec spec = single_tensor({.name = stream.spec().name, .shape = {count}});
    coder = {.room = kFrameHeaderSize + codec.max_encoded_size(spec),
             .encoder = codec.make_encoder(spec),
             .decoder = codec.make_decoder(spec)};
  }
  return &coder;
}

void append_part(Chunk& chunk, ActiveStream& stream, Range range, Coders& coders) {
  Coder* const coder = coders.of(stream, range.count);
  chunk.parts.push_back({.stream = &stream, .range = range, .offset = chunk.size, .coder = coder});
  chunk.count += range.count;
  chunk.size += coder->room;
}

}  // namespace thinwire
