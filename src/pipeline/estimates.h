// Estimates: what both ends of a boundary remember, of samples, batches or places in a step.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/aligned.h"
#include "pipeline/boundary_plan.h"
#include "pipeline/estimate_store.h"

namespace thinwire {

// h, an estimate of x; m, what is sent of x - h:
//
//   first visit   m = x, in full; h <- m          (aqsgd)
//   later         m = C(x - h);   h <- h + m
//                 (aqsgd [Wang et al., NeurIPS 2022]; ef21, from h = 0)
//
// and h + m is what arrives. Both ends form it by the same decoder from the same bytes and round it
// to the cache's precision alike: their estimates have the same bits. A history, the checksum of
// all messages that counted, in order, says so in every message.
class Estimates final : public Stateful {
 public:
  // `plan`, which has estimates, outlives this.
  explicit Estimates(const BoundaryPlan& plan);

  // The samples of a micro-batch, those with an estimate first.
  struct Recalled {
    std::vector<uint32_t> order;  // place in the micro-batch of each
    size_t held = 0;              // how many have an estimate
    std::span<float>
        values;  // in that order: estimates, then -0, which adding a value makes that value
  };

  // Good until the step ends; `values` are to be made what arrives. Throws as BoundaryEnd says.
  Recalled& recall(const Visit& visit, size_t samples);

  // What `values` became is to be the estimate. `sum` is the message's checksum. Throws
  // where there is no room: then nothing of it will be remembered.
  void remember(const Visit& visit, uint64_t sum);

  uint64_t history() const noexcept { return history_; }

  void commit();
  void rollback() noexcept;
  void invalidate();

  StateArrays save() const override;
  Status load(const StateArrays& arrays) override;

 private:
  // A micro-batch of the step under way.
  struct Part {
    Recalled recalled;
    std::vector<uint64_t> keys;  // in the order of recalled; one if it is for all samples
    uint64_t tag = 0;
    uint64_t sum = 0;
    bool kept = false;
  };

  void find_samples(const Visit& visit, size_t samples, Part& part);
  void find_whole(const Visit& visit, Part& part);
  uint64_t key_of(const Visit& visit) const;
  void take(uint64_t key, const char* what);

  const BoundaryPlan& plan_;
  const EstimateRule& rule_;
  EstimateStore store_;
  uint64_t history_ = 0;
  AlignedVector<float> values_;  // of a step
  std::vector<Part> parts_;
  std::vector<uint64_t> taken_;  // keys of the step under way, ascending
  size_t fresh_ = 0;             // of them that the store does not have
};

}  // namespace thinwire
