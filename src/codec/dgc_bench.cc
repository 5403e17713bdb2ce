// dgc with the pass that forms its values: what one step with residual feedback costs.
// SPDX-License-Identifier: Apache-2.0
#include "codec/testing/sparsifier_bench.h"

namespace thinwire {
namespace {

// A fixed threshold's budget, and the sample.
double budget(const bench::Baseline& base) { return 1.3 * (base.stream + base.scan); }

void dgc_0_01(benchmark::State& state) { bench::feedback_step(state, "dgc", budget); }
void dgc_0_001(benchmark::State& state) {
  bench::feedback_step(state, "dgc:density=0.001", budget);
}
void dgc_0_1(benchmark::State& state) { bench::feedback_step(state, "dgc:density=0.1"); }

THINWIRE_BENCH(dgc_0_001);
THINWIRE_BENCH(dgc_0_01);
THINWIRE_BENCH(dgc_0_1);

}  // namespace
}  // namespace thinwire
