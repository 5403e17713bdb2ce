// SkippedSteps: ends a run after too many skipped steps in a row.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "thinwire/exchange.h"

namespace thinwire {

// For runs in which some ranks' exchanges do not see why a step is skipped, so that they cannot
// count.
class SkippedSteps {
 public:
  // At `most` in a row, or never if that is 0.
  explicit SkippedSteps(int most) : most_(most) {}

  // After each step, with the same arguments on every rank. `fault` is that of a skipped step.
  // Throws AgreedError.
  void count(bool skipped, const Fault& fault) {
    in_a_row_ = skipped ? in_a_row_ + 1 : 0;
    if (most_ > 0 && in_a_row_ >= most_)
      throw AgreedError(
          ErrorCode::kNonFinite,
          std::to_string(in_a_row_) + " steps in a row were skipped; the last: " + describe(fault));
  }

 private:
  int most_;
  int in_a_row_ = 0;
};

}  // namespace thinwire
