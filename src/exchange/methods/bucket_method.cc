// BucketMethod: begins buckets in their order, and moves those that are on their way.
// SPDX-License-Identifier: Apache-2.0
#include "exchange/methods/bucket_method.h"

#include <algorithm>

namespace thinwire {

void BucketMethod::begin(size_t bucket) {
  buckets_[bucket]->begin();
  under_way_.push_back(buckets_[bucket].get());
}

bool BucketMethod::advance() {
  bool moved = false;
  for (BucketSteps* bucket : under_way_) moved |= bucket->advance();
  return std::erase_if(under_way_, [](BucketSteps* bucket) { return bucket->done(); }) > 0 || moved;
}

bool BucketMethod::has_rows() const noexcept {
  return under_way_.size() == buckets_.size() &&
         std::all_of(under_way_.begin(), under_way_.end(),
                     [](const BucketSteps* bucket) { return bucket->has_rows(); });
}

void BucketMethod::add_statistics(StatisticsRound& to) {
  for (const auto& bucket : buckets_) bucket->add_statistics(to);
}

void BucketMethod::choose(std::span<const float> row_weights) {
  for (const auto& bucket : buckets_) bucket->choose(row_weights);
}

void BucketMethod::combine_only(const std::vector<bool>& ranks, const Combine& rule) {
  for (const auto& bucket : buckets_) bucket->combine_only(ranks, rule);
}

void BucketMethod::end(bool skipped) noexcept {
  for (const auto& bucket : buckets_) bucket->end(skipped);
}

std::vector<Piece> BucketMethod::owned(size_t rank) const {
  std::vector<Piece> pieces;
  for (const auto& bucket : buckets_) bucket->add_owned(rank, pieces);
  return pieces;
}

const Transfer* BucketMethod::awaited() const noexcept {
  return under_way_.empty() ? nullptr : under_way_.front()->awaited();
}

bool BucketMethod::awaits_owner() const noexcept {
  return !under_way_.empty() && under_way_.front()->awaits_owner();
}

}  // namespace thinwire
