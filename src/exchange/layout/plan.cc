// make_plan: forms streams and buckets from a list of tensors.
// SPDX-License-Identifier: Apache-2.0
#include "exchange/layout/plan.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

namespace thinwire {
namespace {

// A bucket is closed once it holds `limit` values or the last tensor of its section, and equal
// parts of more than `limit` are at least half of it: so there are at most 2 x total / limit + 1
// buckets, with as many as there are sections in place of the 1.
size_t values_per_bucket(size_t total, const PlanOptions& options) {
  const size_t floor = 2 * total / (kMaxBuckets - options.sections.size()) + 1;
  return std::max(options.bucket_bytes / sizeof(float), floor);
}

// Cuts a bucket of more than `limit` values into equal ones, so that parts of a large tensor travel
// while others are encoded.
void add_divided(const Bucket& bucket, size_t limit, std::vector<Bucket>& parts) {
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

// The bucket of a section while it is being filled; the only one of a section that is one stream.
class OpenBucket {
 public:
  OpenBucket(const std::vector<TensorSpec>& tensors, size_t all, size_t section,
             const SectionLayout& layout, size_t limit)
      : tensors_(tensors), all_(all), section_(section), layout_(layout), limit_(limit) {}

  // `place` is that of the tensor among those of the section.
  void add(size_t index, size_t place, bool plain, std::optional<size_t> owner) {
    const TensorSpec& tensor = tensors_[index];
    count_ += tensor.count();
    if (is_one_stream(layout_.grouping)) {
      whole_.push_back(index);
    } else if (!plain) {
      streams_.push_back(
          {.spec = single_tensor(tensor), .tensors = {index}, .owner = owner, .first = place});
    } else {
      PlannedStream& together = plain_[owner];
      if (together.tensors.empty()) {
        together.spec.name = "dense:" + tensor.name;
        together.plain = true;
        together.owner = owner;
        together.first = place;
      }
      together.spec.tensors.push_back(tensor);
      together.tensors.push_back(index);
    }
  }

  bool full() const { return !is_one_stream(layout_.grouping) && count_ >= limit_; }

  void close(Plan& plan) {
    for (auto& [owner, stream] : plain_) streams_.push_back(std::move(stream));
    if (!whole_.empty()) streams_.push_back(whole_section());
    Bucket bucket;
    for (PlannedStream& stream : streams_) {
      stream.section = section_;
      bucket.push_back({.stream = plan.streams.size(), .begin = 0, .count = stream.spec.count()});
      plan.streams.push_back(std::move(stream));
    }
    if (layout_.divisible)
      add_divided(bucket, limit_, plan.buckets);
    else
      plan.buckets.push_back(std::move(bucket));
    streams_.clear();
    plain_.clear();
    count_ = 0;
  }

 private:
  PlannedStream whole_section() const {
    PlannedStream stream{.spec = {}, .tensors = {whole_.rbegin(), whole_.rend()}};
    for (const size_t index : stream.tensors) stream.spec.tensors.push_back(tensors_[index]);
    const bool all = whole_.size() == all_;
    stream.spec.name = all ? "model" : "model:" + stream.spec.tensors.front().name;
    return stream;
  }

  const std::vector<TensorSpec>& tensors_;
  const size_t all_;
  const size_t section_;
  const SectionLayout layout_;
  const size_t limit_;
  std::vector<PlannedStream> streams_;
  std::map<std::optional<size_t>, PlannedStream> plain_;  // by owner
  std::vector<size_t>
      whole_;  // tensors of a section that is one stream, from the last to the first
  size_t count_ = 0;
};

}  // namespace

Plan make_plan(const std::vector<TensorSpec>& tensors, const PlanOptions& options) {
  Plan plan;
  if (tensors.empty()) return plan;
  const size_t limit = values_per_bucket(total_count(tensors), options);
  const auto section_of = [&](size_t index) {
    return options.section_of.empty() ? 0 : options.section_of[index];
  };
  const size_t all = std::max(options.of_all.all, tensors.size());
  std::vector<OpenBucket> open;
  for (size_t section = 0; section < options.sections.size(); ++section)
    open.emplace_back(tensors, all, section, options.sections[section], limit);
  std::vector<size_t> left(open.size());  // tensors to come
  for (size_t index = 0; index < tensors.size(); ++index) ++left[section_of(index)];

  for (size_t index = tensors.size(); index-- > 0;) {
    const auto& kinds = options.plain_kinds;
    const bool plain = std::find(kinds.begin(), kinds.end(), tensors[index].kind) != kinds.end();
    OpenBucket& bucket = open[section_of(index)];
    const size_t place = --left[section_of(index)];
    std::optional<size_t> owner;
    if (!options.owners.empty()) owner = static_cast<size_t>(options.owners[index]);
    bucket.add(index, place, plain, owner);
    if (place == 0 || bucket.full()) bucket.close(plan);
  }
  if (options.of_all.all > 0)
    for (PlannedStream& stream : plan.streams)
      stream.first = options.of_all.places[stream.tensors.front()];
  return plan;
}

std::vector<std::vector<size_t>> first_tensors_of(const Plan& plan) {
  std::vector<std::vector<size_t>> first(plan.buckets.size());
  std::vector<bool> seen(plan.streams.size());
  for (size_t bucket = 0; bucket < plan.buckets.size(); ++bucket)
    for (const Piece& piece : plan.buckets[bucket]) {
      if (seen[piece.stream]) continue;
      seen[piece.stream] = true;
      const std::vector<size_t>& tensors = plan.streams[piece.stream].tensors;
      first[bucket].insert(first[bucket].end(), tensors.begin(), tensors.end());
    }
  return first;
}

size_t total_count(const std::vector<TensorSpec>& tensors) noexcept {
  size_t total = 0;
  for (const TensorSpec& tensor : tensors) total += tensor.count();
  return total;
}

}  // namespace thinwire
