// Plan: which tensors share a stream, and which parts of streams are sent together, in order.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "thinwire/codec.h"
#include "thinwire/stream.h"

namespace thinwire {

struct PlannedStream {
  StreamSpec spec;
  std::vector<size_t> tensors;                 // indices in the list given, in the spec's order
  bool plain = false;                          // small tensors together in fp32, with no memory
  size_t section = 0;                          // index of the section that its tensors are of
  std::optional<size_t> owner = std::nullopt;  // the rank that its mean is for; else shards
  size_t first = 0;  // place of its first tensor among those of the section
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

// The tensors of one codec.
struct SectionLayout {
  Grouping grouping = Grouping::kTensor;
  bool divisible = false;  // streams may be cut at any value
};

// Where tensors are in an exchange, if the list given is only some of its tensors; empty if it is
// all of them.
struct Selection {
  std::vector<size_t> places;  // of each tensor of the list, among all tensors of its section
  size_t all = 0;              // the number of tensors of the exchange
};

struct PlanOptions {
  std::vector<TensorKind> plain_kinds;
  size_t bucket_bytes = 0;
  std::vector<SectionLayout> sections = {{}};
  std::vector<size_t> section_of = {};  // by tensor; empty: all are of the first
  Selection of_all = {};
  std::vector<int> owners = {};  // by tensor; empty: there are none
};

// Tensors go into buckets from the last to the first, as a backward pass makes them; a bucket is
// full at bucket_bytes of fp32, and holds tensors of one section. Buckets travel in the order in
// which a backward pass completes them. Each tensor is a stream, except that those of a plain kind
// are one stream per bucket (and owner, if tensors have owners), named "dense:<its first tensor>";
// no memory hangs on that name. Grouping::kGlobal has the same streams. Grouping::kModel makes one
// stream of all tensors of the section in the order given: "model" if these are all that there are,
// else "model:<its first tensor>". Divisible streams larger than a bucket are cut into equal parts.
// At most kMaxBuckets buckets, whatever bucket_bytes says. REQUIRES: at most kMaxSections sections.
Plan make_plan(const std::vector<TensorSpec>& tensors, const PlanOptions& options);

// Returns, by bucket, the tensors of the streams of which the bucket has the first piece: those
// that no bucket before it needs.
std::vector<std::vector<size_t>> first_tensors_of(const Plan& plan);

// Returns how many values the tensors have together.
size_t total_count(const std::vector<TensorSpec>& tensors) noexcept;

inline constexpr size_t kMaxBuckets = 9000;
inline constexpr size_t kMaxSections = 1000;

}  // namespace thinwire
