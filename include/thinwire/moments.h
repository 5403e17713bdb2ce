// Sums over a vector that methods choose thresholds and scales by.
// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace thinwire {

// By-products of the pass that forms the values. Sums run over fixed chunks with a fixed number of
// lanes, chunk sums added in double in order: the same bits on every machine.
struct Moments {
  double abs_sum = 0;     // sum of |x|
  double square_sum = 0;  // sum of x^2
  float abs_max = 0;      // largest |x|
  bool finite = true;     // no NaN, no Inf; the other members mean nothing otherwise
};

}  // namespace thinwire
