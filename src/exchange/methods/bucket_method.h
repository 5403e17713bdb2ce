// BucketMethod: a method that runs one collective for each bucket.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "exchange/methods/method.h"
#include "exchange/wire/message_tags.h"

namespace thinwire {

// One bucket, step after step: begin, then advance until done.
class Collective {
 public:
  virtual ~Collective() = default;

  virtual void begin() = 0;
  virtual bool advance() = 0;
  virtual bool done() const noexcept = 0;
  virtual bool has_rows() const noexcept { return false; }
  virtual void add_statistics(StatisticsRound& /*to*/) {}
  virtual void choose(std::span<const float> /*row_weights*/) {}
  virtual void keep(const std::vector<bool>& /*ranks*/, const Combine& /*rule*/) {}
  virtual void end(bool /*skipped*/) noexcept {}
  virtual void add_owned(size_t /*rank*/, std::vector<Piece>& /*to*/) const {}
  virtual const Transfer* awaited() const noexcept = 0;
  virtual bool awaits_owner() const noexcept { return false; }
};

// The members of Method, over those buckets that are on their way.
class BucketMethod final : public Method {
 public:
  explicit BucketMethod(std::vector<std::unique_ptr<Collective>> buckets)
      : buckets_(std::move(buckets)) {}

  void begin(size_t bucket) override;
  bool advance() override;
  bool done() const noexcept override { return under_way_.empty(); }
  bool has_rows() const noexcept override;
  void add_statistics(StatisticsRound& to) override;
  void choose(std::span<const float> row_weights) override;
  void keep(const std::vector<bool>& ranks, const Combine& rule) override;
  void end(bool skipped) noexcept override;
  std::vector<Piece> owned(size_t rank) const override;

  // Of the oldest bucket on its way.
  const Transfer* awaited() const noexcept override;
  bool awaits_owner() const noexcept override;

 private:
  std::vector<std::unique_ptr<Collective>> buckets_;
  std::deque<Collective*> under_way_;
};

// The collectives that `make(bucket, tag)` gives; tags `tag` and `tag + 1` belong to the bucket.
template <typename Make>
std::vector<std::unique_ptr<Collective>> collectives_of(const MethodParts& parts,
                                                        const Make& make) {
  std::vector<std::unique_ptr<Collective>> all;
  for (size_t i = 0; i < parts.buckets.size(); ++i)
    all.push_back(make(parts.buckets[i], parts.first_tag + kTagsPerBucket * static_cast<int>(i)));
  return all;
}

// A method of such collectives.
template <typename Make>
std::unique_ptr<Method> for_each_bucket(const MethodParts& parts, const Make& make) {
  return std::make_unique<BucketMethod>(collectives_of(parts, make));
}

}  // namespace thinwire
