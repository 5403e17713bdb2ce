// A fixed threshold with the pass that forms its values: one step with residual feedback.
// SPDX-License-Identifier: Apache-2.0
#include "codec/testing/sparsifier_bench.h"

namespace thinwire {
namespace {

double budget(const bench::Baseline& base) { return 1.3 * (base.stream + base.scan); }

// Of a Laplace law exp(-threshold) pass.
void threshold_0_001(benchmark::State& state) {
  bench::feedback_step(state, "threshold:threshold=6.908", budget);
}
void threshold_0_01(benchmark::State& state) {
  bench::feedback_step(state, "threshold:threshold=4.605", budget);
}

THINWIRE_BENCH(threshold_0_001);
THINWIRE_BENCH(threshold_0_01);

}  // namespace
}  // namespace thinwire
