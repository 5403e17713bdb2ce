// gaussiank with the pass that forms its values: what one step with residual feedback costs.
// SPDX-License-Identifier: Apache-2.0
#include "codec/testing/sparsifier_bench.h"

namespace thinwire {
namespace {

// That of a method that fits twice: a law is fitted and its threshold adjusted.
double budget(const bench::Baseline& base) { return 1.3 * (base.stream + 2 * base.scan); }

void gaussiank_0_001(benchmark::State& state) {
  bench::feedback_step(state, "gaussiank:density=0.001", budget);
}
void gaussiank_0_01(benchmark::State& state) { bench::feedback_step(state, "gaussiank", budget); }

THINWIRE_BENCH(gaussiank_0_001);
THINWIRE_BENCH(gaussiank_0_01);

}  // namespace
}  // namespace thinwire
