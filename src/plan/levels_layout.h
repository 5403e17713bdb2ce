// LevelsLayout: the layout of an exchange with or without groups inside, by the places of ranks in
// their groups.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "exchange/levels/holders.h"
#include "plan/moves.h"
#include "plan/step_layout.h"
#include "thinwire/step_plan.h"

namespace thinwire {

// Ranks of one place in their groups do the same for their groups. Without a hierarchy each rank is
// a group, and there is one place. Laid out by the functions that the exchange itself uses.
class LevelsLayout {
 public:
  // Fails as make_exchange does, and for what cannot be played (step_plan.h).
  static Result<std::unique_ptr<LevelsLayout>> make(const std::vector<TensorSpec>& tensors,
                                                    const ExchangeOptions& options, int ranks,
                                                    CostTable& costs);

  size_t places() const noexcept { return places_.size(); }
  size_t groups() const noexcept { return groups_; }
  const StepLayout& between(size_t place) const noexcept { return *places_[place].between; }

  // The buckets that gradients complete.
  const Plan& plan() const noexcept { return places() == 1 ? between(0).plan() : inside_plan_; }

  // Of the rank at `place` of `group`, but for the agreement at the end of the step.
  Moves moves(size_t place, size_t group, uint64_t step) const;

  // "scatter-reduce", or those of several rules, separated by commas.
  std::string method_names() const;
  // Of the rank that keeps most.
  double memory_bytes() const;

 private:
  struct Place {
    std::vector<size_t> tensors;  // that it holds, by their numbers among all
    std::unique_ptr<StepLayout> between;
  };
  // What a bucket inside comes to at one holder.
  struct InsideShare {
    double size = 0;  // bytes
    double encode_seconds = 0;
    double decode_seconds = 0;
  };

  void lay_inside(const std::vector<TensorSpec>& tensors, const ExchangeOptions& options,
                  const std::vector<size_t>& holder_of, CostTable& costs);
  void add_sums(size_t place, Moves& to) const;
  void add_between(size_t place, size_t group, uint64_t step, Moves& to) const;
  void add_hand_outs(size_t place, Moves& to) const;
  InsideShare sum_inside(size_t bucket) const;

  size_t groups_ = 1;
  std::vector<Place> places_;
  Plan inside_plan_;
  std::vector<std::vector<InsideShare>> inside_;  // by bucket and holder
  std::vector<std::vector<size_t>>
      buckets_with_;  // by tensor: buckets inside that have a part of it
};

}  // namespace thinwire
