// make_shards() and deal_out(): divide a bucket's values among the ranks that add them, in method
// dense.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "exchange/layout/plan.h"
#include "exchange/owner/chunk.h"
#include "exchange/wire/active_stream.h"

namespace thinwire {

// Cuts the bucket's pieces at the borders of `n` equal ranges; shard r is one chunk and belongs to
// rank r. REQUIRES: codecs of fixed size.
std::vector<Chunk> make_shards(const Streams& streams, const Bucket& bucket, size_t n,
                               Coders& coders);

// The owners of streams that all have one; empty otherwise.
std::vector<size_t> owners_of(const Streams& streams);

// The same where each stream belongs to one of the ranks as a whole: owner_of[index of the stream].
std::vector<Chunk> deal_out(const Streams& streams, const Bucket& bucket, size_t n,
                            std::span<const size_t> owner_of, Coders& coders);

}  // namespace thinwire
