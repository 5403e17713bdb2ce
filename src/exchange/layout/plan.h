// Which tensors share a stream, and which parts of streams travel together, in which order.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <vector>

#include "thinwire/codec.h"
#include "thinwire/stream.h"

namespace thinwire {

struct PlannedStream {
  StreamSpec spec;
  std::vector<size_t> tensors;  // indices in the list given, in the spec's order
  bool plain = false;           // small tensors together in fp32, with no memory
};

// Values [begin, begin + count) of a stream.
struct Piece {
  size_t stream = 0;
  size_t begin = 0;
  size_t count = 0;
};

using Bucket = std::vector<Piece>;

struct Plan {
  std::vector<PlannedStream> streams;
  std::vector<Bucket> buckets;  // in the order in which they travel
};

struct PlanOptions {
  Grouping grouping = Grouping::kTensor;
  std::vector<TensorKind> plain_kinds;
  size_t bucket_bytes = 0;
  bool divisible = false;  // streams may be cut at any value
};

// Tensors go into buckets from the last to the first, as a backward pass makes them; a bucket is
// full at bucket_bytes of fp32. Each tensor is a stream, except that those of a plain kind are one
// stream per bucket, named "dense:<its first tensor>"; no memory hangs on that name.
// Grouping::kModel makes one stream "model" of all tensors in the order given. Divisible streams
// larger than a bucket are cut into equal parts. At most kMaxBuckets buckets, whatever bucket_bytes
// says.
Plan make_plan(const std::vector<TensorSpec>& tensors, const PlanOptions& options);

inline constexpr size_t kMaxBuckets = 9000;

}  // namespace thinwire
