// Timetable: which samples each rank takes in each step, and when tests and checkpoints are due:
// pure functions of recipe, data size and step, so that a resumed run needs no more than the step.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "thinwire/options.h"

namespace thinwire {

// A contiguous part of something.
struct SampleRange {
  uint64_t begin = 0;
  uint64_t size = 0;

  // The `index`th of `count` contiguous parts, whose sizes differ by one at most.
  SampleRange part(uint64_t index, uint64_t count) const noexcept;
};

// The size of the largest of `parts` such parts.
constexpr uint64_t largest_part(uint64_t size, uint64_t parts) {
  return (size + parts - 1) / parts;
}

struct Timetable {
  uint64_t available = 0;        // samples
  uint64_t samples = 0;          // of one epoch: all, or those that fill batches
  uint64_t batch = 0;            // samples of one step over all ranks
  uint64_t steps_per_epoch = 0;  // the last batch of an epoch may be smaller; it is trained on too
  uint64_t steps = 0;            // in the whole run
  uint64_t evaluate_period = 0;  // steps; 0: never before the end
  uint64_t checkpoint_period = 0;

  double epoch(uint64_t step) const noexcept;          // with fraction
  SampleRange batch_of(uint64_t step) const noexcept;  // within its epoch's order
  uint64_t samples_before(uint64_t step) const noexcept;
  bool evaluates_after(uint64_t step) const noexcept;
  bool checkpoints_after(uint64_t step) const noexcept;
};

// The steps that `epochs` take, which may end within an epoch; a part of a step is a whole one.
uint64_t steps_of(double epochs, uint64_t steps_per_epoch) noexcept;

// Throws Error(kBadOption) without samples.
Timetable make_timetable(const Options& recipe, uint64_t samples);

// The order of samples, another one in each epoch; with fixed batches, another order of the same
// ones.
class Sampler {
 public:
  Sampler(const Options& recipe, const Timetable& timetable);

  // Ids of the part `slice` of the epoch that `step` is in; good until the next call.
  std::span<const uint64_t> ids(uint64_t step, SampleRange slice);

  // Of fixed batches, which one `step` takes, below steps_per_epoch: the same samples at every
  // visit.
  uint64_t batch_id(uint64_t step);

 private:
  void order_epoch(uint64_t epoch);
  void order_batches(uint64_t epoch);

  Timetable timetable_;
  uint64_t seed_;
  bool fixed_batches_;
  uint64_t epoch_ = UINT64_MAX;
  std::vector<uint64_t> order_;    // ids
  std::vector<uint64_t> batches_;  // fixed ones, in this epoch's order
};

}  // namespace thinwire
