// MagnitudeSketch: a histogram of magnitudes, averaged over steps.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace thinwire {

// It has sixteen bins per power of two, and counts samples. The counts of a step are averaged into
// those of the steps before, or forgotten. Counts are whole numbers, and everything else is
// additions, multiplications and divisions. So the bits are the same on every machine, and do not
// depend on the order in which streams are counted. 16 KiB hold the average, and 32 KiB the counts
// of the step.
class MagnitudeSketch {
 public:
  static constexpr size_t kBins = 4096;  // by the upper 12 bits of a magnitude in fp32

  MagnitudeSketch() : average_(kBins), step_(kBins) {}

  // Adds this step's sample, each value of which stands for `each` values.
  void count(std::span<const float> sample, uint64_t each) noexcept;

  // End a step. average: average += share x (step - average), or average = step if nothing was
  // averaged yet. forget: the step never happened.
  void average(float share) noexcept;
  void forget() noexcept;

  bool empty() const noexcept { return empty_; }  // nothing was averaged yet

  // The magnitude that `target` values exceed according to the average, if the values of a bin lie
  // evenly between its ends. Absent if fewer values than that are not zero. REQUIRES: 0 < target.
  std::optional<float> exceeded_by(double target) const noexcept {
    return exceeded_by(target, start_for(target));
  }

  // Where the search for targets from `least` on begins, so that many searches read few bins each.
  // REQUIRES: 0 < least <= target, and the average is still the same.
  struct Start {
    size_t end = 0;    // bins from here on have no part in the answer
    double above = 0;  // their values
  };
  Start start_for(double least) const noexcept;
  std::optional<float> exceeded_by(double target, const Start& start) const noexcept;

  // The average, for saved states. set_bins REQUIRES kBins numbers that are finite and not
  // negative.
  std::span<const float> bins() const noexcept { return average_; }
  void set_bins(std::span<const float> bins);

 private:
  bool empty_ = true;
  size_t end_ = 0;  // behind the last bin of the average that is not empty
  std::vector<float> average_;
  std::vector<uint64_t> step_;
};

}  // namespace thinwire
