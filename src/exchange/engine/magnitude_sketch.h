// MagnitudeSketch: how many values have which magnitudes, averaged over steps, in 16 KiB.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace thinwire {

// A histogram of magnitudes, from samples, in sixteen bins per power of two. Values of a step are
// counted, then averaged into those of the steps before, or forgotten. Counts are whole numbers, and
// the rest takes additions, multiplications and divisions alone: the bits are the same on every machine
// and do not depend on the order in which streams are counted.
class MagnitudeSketch {
 public:
  static constexpr size_t kBins = 4096;  // by the upper 12 bits of a magnitude in fp32

  MagnitudeSketch() : average_(kBins), step_(kBins) {}

  // Counts each value of this step's sample as so many.
  void count(std::span<const float> sample, uint64_t each) noexcept;

  // The step ends: average += share x (step - average), which is the step itself if nothing was
  // averaged yet; or the step never happened.
  void average(float share) noexcept;
  void forget() noexcept;

  bool empty() const noexcept { return empty_; }  // nothing was averaged

  // The magnitude that `target` values exceed, by the average; between the ends of a bin as if its
  // values lay evenly. Absent if fewer have a magnitude at all. REQUIRES: 0 < target.
  std::optional<float> exceeded_by(double target) const noexcept;

  // The average, for saved states. REQUIRES of set_bins: as many, none negative or infinite.
  std::span<const float> bins() const noexcept { return average_; }
  void set_bins(std::span<const float> bins);

 private:
  bool empty_ = true;
  std::vector<float> average_;
  std::vector<uint64_t> step_;
};

}  // namespace thinwire
