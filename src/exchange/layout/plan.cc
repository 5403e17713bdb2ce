// make_plan: forms streams and buckets from a list of tensors.
// SPDX-License-Identifier: Apache-2.0
#include "exchange/layout/plan.h"

#include <algorithm>
#include <numeric>

namespace thinwire {
namespace {

size_t total_count(const std::vector<TensorSpec>& tensors) {
  size_t total = 0;
  for (const TensorSpec& tensor : tensors) total += tensor.count();
  return total;
}

// A bucket is closed once it holds `limit` values, and equal parts of more than `limit` are at
// least half of it: so there are at most 2 x total / limit + 1 buckets.
size_t values_per_bucket(size_t total, size_t bucket_bytes) {
  const size_t floor = 2 * total / (kMaxBuckets - 1) + 1;
  return std::max(bucket_bytes / sizeof(float), floor);
}

PlannedStream whole_model(const std::vector<TensorSpec>& tensors) {
  PlannedStream model;
  model.spec = {.name = "model", .tensors = tensors};
  model.tensors.resize(tensors.size());
  std::iota(model.tensors.begin(), model.tensors.end(), size_t{0});
  return model;
}

// One bucket while it is being filled.
class OpenBucket {
 public:
  explicit OpenBucket(Plan& plan) : plan_(plan) {}

  void add(const TensorSpec& tensor, size_t index, bool plain) {
    count_ += tensor.count();
    if (!plain) {
      streams_.push_back({.spec = single_tensor(tensor), .tensors = {index}});
      return;
    }
    if (plain_.tensors.empty()) plain_.spec.name = "dense:" + tensor.name;
    plain_.spec.tensors.push_back(tensor);
    plain_.tensors.push_back(index);
  }

  size_t count() const { return count_; }

  void close() {
    plain_.plain = true;
    if (!plain_.tensors.empty()) streams_.push_back(std::move(plain_));
    if (!streams_.empty()) plan_.buckets.emplace_back();
    for (PlannedStream& stream : streams_) {
      plan_.buckets.back().push_back(
          {.stream = plan_.streams.size(), .begin = 0, .count = stream.spec.count()});
      plan_.streams.push_back(std::move(stream));
    }
    streams_.clear();
    plain_ = {};
    count_ = 0;
  }

 private:
  Plan& plan_;
  std::vector<PlannedStream> streams_;
  PlannedStream plain_;
  size_t count_ = 0;
};

// Cuts buckets of more than `limit` values into equal ones, so that parts of a large tensor travel
// while others are encoded.
std::vector<Bucket> divide(const std::vector<Bucket>& buckets, size_t limit) {
  std::vector<Bucket> parts;
  for (const Bucket& bucket : buckets) {
    size_t total = 0;
    for (const Piece& piece : bucket) total += piece.count;
    const size_t cuts = std::max<size_t>(1, (total + limit - 1) / limit);
    const size_t share = std::max<size_t>(1, (total + cuts - 1) / cuts);
    size_t room = share;
    parts.emplace_back();
    for (Piece piece : bucket) {
      while (piece.count > room) {
        if (room > 0) parts.back().push_back({piece.stream, piece.begin, room});
        piece.begin += room;
        piece.count -= room;
        parts.emplace_back();
        room = share;
      }
      parts.back().push_back(piece);
      room -= piece.count;
    }
  }
  return parts;
}

}  // namespace

Plan make_plan(const std::vector<TensorSpec>& tensors, const PlanOptions& options) {
  Plan plan;
  if (tensors.empty()) return plan;
  const size_t limit = values_per_bucket(total_count(tensors), options.bucket_bytes);

  if (options.grouping == Grouping::kModel) {
    plan.streams.push_back(whole_model(tensors));
    plan.buckets.push_back({{.stream = 0, .begin = 0, .count = total_count(tensors)}});
  } else {
    OpenBucket bucket(plan);
    for (size_t index = tensors.size(); index-- > 0;) {
      const auto& kinds = options.plain_kinds;
      const bool plain = std::find(kinds.begin(), kinds.end(), tensors[index].kind) != kinds.end();
      bucket.add(tensors[index], index, plain);
      if (bucket.count() >= limit) bucket.close();
    }
    bucket.close();
  }
  if (options.divisible) plan.buckets = divide(plan.buckets, limit);
  return plan;
}

}  // namespace thinwire
