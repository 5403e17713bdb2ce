// PlayedSteps: an even and an odd step of the ranks that decide how long a step takes, and what all
// ranks send.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "plan/levels_layout.h"
#include "plan/step_play.h"
#include "thinwire/step_plan.h"

namespace thinwire {

// `layout` and `timeline` must outlive it.
class PlayedSteps {
 public:
  PlayedSteps(const LevelsLayout& layout, const StepTimeline& timeline);

  // By rank, in bytes: means over so many steps that each rank was the root of even and of odd ones
  // equally often.
  const std::vector<double>& sent() const noexcept { return sent_; }
  const std::vector<double>& inside() const noexcept { return inside_; }
  bool exact() const noexcept { return exact_; }

  // Means of an even and an odd step of the place that takes longest.
  Played play(const PlanRequest& request, bool free_coding = false) const;

 private:
  // Ranks of one place in their groups; of those, the one that sends most.
  struct Place {
    std::array<Moves, 2> samples;  // of an even and of an odd step
    double between = 0;            // bytes
  };

  Place count_place(size_t place);
  PlayLinks links_of(const Place& place, const PlanRequest& request) const;
  Played play(const Place& place, const PlanRequest& request, bool free_coding) const;

  const LevelsLayout& layout_;
  const StepTimeline& timeline_;
  const std::vector<double> times_;  // of buckets
  std::vector<double> sent_, inside_;
  double between_ = 0;  // bytes of all places
  bool exact_ = true;
  std::vector<Place> places_;
};

}  // namespace thinwire
