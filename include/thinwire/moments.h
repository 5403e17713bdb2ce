// Moments: sums over a vector, by which methods choose thresholds and scales.
// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace thinwire {

// These come from the pass that forms the values. Sums run over fixed chunks with a fixed number of
// lanes, and the sums of chunks are added in double in order: the same bits on every machine.
struct Moments {
  double abs_sum = 0;     // sum of |x|
  double square_sum = 0;  // sum of x^2
  float abs_max = 0;      // largest |x|
  bool finite = true;     // no NaN, no Inf; if false, the other members mean nothing
};

}  // namespace thinwire
