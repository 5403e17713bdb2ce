// BucketMethod: a method that treats each bucket by itself, and BucketSteps, one bucket of it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "exchange/methods/method.h"
#include "exchange/step/message_tags.h"

namespace thinwire {

// One bucket of a method, step after step: begin, then advance until done. Functions do for this
// bucket what those of the same name in Method do for all.
class BucketSteps {
 public:
  virtual ~BucketSteps() = default;

  // Compresses the bucket's pieces and starts its messages.
  virtual void begin() = 0;
  // Goes as far as it can without waiting; returns whether it got anywhere.
  virtual bool advance() = 0;
  // Whether the bucket's results of this step are there. Then advance is not called any more.
  virtual bool done() const noexcept = 0;

  // As in Method.
  virtual bool has_rows() const noexcept { return false; }
  virtual void add_statistics(StatisticsRound& /*to*/) {}
  virtual void choose(std::span<const float> /*row_weights*/) {}
  virtual void combine_only(const std::vector<bool>& /*ranks*/, const Combine& /*rule*/) {}
  virtual void end(bool /*skipped*/) noexcept {}

  // Adds the values of this bucket that a rank owns, in any order.
  virtual void add_owned(size_t /*rank*/, std::vector<Piece>& /*to*/) const {}

  // As in Method. Called only between begin and done.
  virtual const Transfer* awaited() const noexcept = 0;
  virtual bool awaits_owner() const noexcept { return false; }
};

// advance, done, has_rows, awaited and awaits_owner look at the buckets that are on their way; all
// other functions but begin, which begins one, run over all buckets of the section.
class BucketMethod final : public Method {
 public:
  explicit BucketMethod(std::vector<std::unique_ptr<BucketSteps>> buckets)
      : buckets_(std::move(buckets)) {}

  void begin(size_t bucket) override;
  bool advance() override;
  bool done() const noexcept override { return under_way_.empty(); }
  bool has_rows() const noexcept override;
  void add_statistics(StatisticsRound& to) override;
  void choose(std::span<const float> row_weights) override;
  void combine_only(const std::vector<bool>& ranks, const Combine& rule) override;
  void end(bool skipped) noexcept override;
  std::vector<Piece> owned(size_t rank) const override;

  // Of the oldest bucket on its way.
  const Transfer* awaited() const noexcept override;
  bool awaits_owner() const noexcept override;

 private:
  std::vector<std::unique_ptr<BucketSteps>> buckets_;
  std::deque<BucketSteps*> under_way_;
};

// What `make(bucket, tag)` gives for each bucket; tags `tag` and `tag + 1` belong to it.
template <typename Make>
std::vector<std::unique_ptr<BucketSteps>> steps_of(const MethodParts& parts, const Make& make) {
  std::vector<std::unique_ptr<BucketSteps>> all;
  for (size_t i = 0; i < parts.buckets.size(); ++i)
    all.push_back(make(parts.buckets[i], parts.first_tag + kTagsPerBucket * static_cast<int>(i)));
  return all;
}

// A method of such buckets.
template <typename Make>
std::unique_ptr<Method> for_each_bucket(const MethodParts& parts, const Make& make) {
  return std::make_unique<BucketMethod>(steps_of(parts, make));
}

}  // namespace thinwire
