// Shards: how a bucket's values are divided among the ranks that add them.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "exchange/methods/method.h"
#include "thinwire/codec.h"

namespace thinwire {

// The part of a stream that lies in one shard: one frame.
struct Slice {
  ActiveStream* stream = nullptr;
  size_t begin = 0;  // in the stream
  size_t count = 0;
  size_t offset = 0;  // of its frame in the shard's message
  size_t room = 0;    // bytes of its frame
  std::unique_ptr<Encoder> encoder;
  std::unique_ptr<const Decoder> decoder;
};

struct Shard {
  std::vector<Slice> slices;
  size_t count = 0;
  size_t size = 0;  // bytes of its message
};

// Cuts the bucket's pieces at the borders of `n` equal ranges; shard r belongs to rank r.
// REQUIRES: codecs of fixed size.
std::vector<Shard> make_shards(const Streams& streams, const Bucket& bucket, size_t n);

}  // namespace thinwire
