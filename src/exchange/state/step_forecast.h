// StepForecast: from a step's first streams, how many values its later streams send.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

namespace thinwire {

// How many values exceed a threshold follows the batch: where the first streams of a step have more
// of them than usual, so have the later ones. For every stream this keeps the share that it has of a
// step's values above the threshold, averaged over steps. The streams that were seen in a step then
// tell how many values the others have. Used by one thread.
class StepForecast {
 public:
  // A stream of this step has so many values above the threshold. `stream` is a number that no other
  // stream has; each stream is seen once in a step at most. 16 bytes are kept for every number below
  // the largest one.
  void see(size_t stream, double above);

  // Values above the threshold in all streams that were seen in this step.
  double seen() const noexcept { return above_; }

  // Values above the threshold in the streams that are still to come, if a usual step has `usual`
  // in all streams. Absent if no shares are known yet. REQUIRES: 0 < usual.
  std::optional<double> to_come(double usual) const noexcept;

  // End a step. average: share += weight x (share of the step - share), where streams that were not
  // seen have the share 0. forget: the step never happened.
  void average(double weight) noexcept;
  void forget() noexcept;

  // By stream, from 0 to 1, for saved states. Empty if none is known.
  std::span<const double> shares() const noexcept { return shares_; }
  void set_shares(std::span<const double> shares);

 private:
  std::vector<double> shares_;
  double total_ = 0;  // of the shares

  // Of this step.
  std::vector<double> step_;  // values above the threshold, by stream; not shorter than shares_
  double above_ = 0;          // their sum
  double share_ = 0;          // sum of the shares of the streams seen
};

}  // namespace thinwire
