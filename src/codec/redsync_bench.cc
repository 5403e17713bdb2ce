// redsync with the pass that forms its values: what one step with residual feedback costs.
// SPDX-License-Identifier: Apache-2.0
#include "codec/testing/sparsifier_bench.h"

namespace thinwire {
namespace {

double one_look(const bench::Baseline& base) { return 1.3 * (base.stream + base.scan); }
double two_looks(const bench::Baseline& base) { return 1.3 * (base.stream + 2 * base.scan); }

// Never committed, every step searches: one in five does otherwise.
void redsync_search_0_001(benchmark::State& state) {
  bench::feedback_step(state, "redsync:density=0.001", two_looks);
}
void redsync_search_0_01(benchmark::State& state) {
  bench::feedback_step(state, "redsync", two_looks);
}
// Committed, with one threshold for all steps.
void redsync_reuse_0_001(benchmark::State& state) {
  bench::feedback_step(state, "redsync:density=0.001,reuse=1000", one_look, bench::kLarge, true);
}
void redsync_reuse_0_01(benchmark::State& state) {
  bench::feedback_step(state, "redsync:reuse=1000", one_look, bench::kLarge, true);
}
// An exact top-k's budgets.
void redsync_trimmed_0_001(benchmark::State& state) {
  bench::feedback_step(state, "redsync:density=0.001,search=trimmed",
                       [](const bench::Baseline& base) { return 1.6 * (base.stream + base.scan); });
}
void redsync_trimmed_0_01(benchmark::State& state) {
  bench::feedback_step(state, "redsync:search=trimmed",
                       [](const bench::Baseline& base) { return 2.2 * (base.stream + base.scan); });
}
void redsync_quantized_0_01(benchmark::State& state) {
  bench::feedback_step(state, "redsync:quantized=true", two_looks);
}

THINWIRE_BENCH(redsync_search_0_001);
THINWIRE_BENCH(redsync_search_0_01);
THINWIRE_BENCH(redsync_reuse_0_001);
THINWIRE_BENCH(redsync_reuse_0_01);
THINWIRE_BENCH(redsync_trimmed_0_001);
THINWIRE_BENCH(redsync_trimmed_0_01);
THINWIRE_BENCH(redsync_quantized_0_01);

}  // namespace
}  // namespace thinwire
