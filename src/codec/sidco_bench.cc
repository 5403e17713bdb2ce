// SIDCo with the pass that forms its values: what one step with residual feedback costs.
// SPDX-License-Identifier: Apache-2.0
#include <string>

#include "codec/testing/sparsifier_bench.h"

namespace thinwire {
namespace {

// On a Laplace gradient the exponential law keeps the target.
void step(benchmark::State& state, const std::string& spec, double scans, size_t count) {
  bench::feedback_step(
      state, "sidco:" + spec,
      [&](const bench::Baseline& base) { return 1.3 * (base.stream + scans * base.scan); }, count);
}

void sidco_e1_0_01(benchmark::State& state) {
  step(state, "law=exponential,stages=1", 1, bench::kLarge);
}
void sidco_e1_0_001(benchmark::State& state) {
  step(state, "law=exponential,stages=1,density=0.001", 1, bench::kLarge);
}
void sidco_e_0_01(benchmark::State& state) {
  step(state, "law=exponential,stages=" + std::to_string(state.range(0)), 2, bench::kLarge);
}
void sidco_e_0_001(benchmark::State& state) {
  step(state, "law=exponential,density=0.001,stages=" + std::to_string(state.range(0)), 2,
       bench::kLarge);
}
void sidco_p_0_01(benchmark::State& state) {
  step(state, "law=pareto,stages=" + std::to_string(state.range(0)), 2, bench::kLarge);
}
void sidco_p_0_001(benchmark::State& state) {
  step(state, "law=pareto,density=0.001,stages=" + std::to_string(state.range(0)), 2,
       bench::kLarge);
}
void sidco_gp2_0_01(benchmark::State& state) {
  step(state, "law=gamma_pareto,stages=2", 2, bench::kLarge);
}
// Never committed, every step is the first of a window: a step of scan adaption, one in five.
void sidco_scan_0_01(benchmark::State& state) { step(state, "density=0.01", 2, bench::kLarge); }
void sidco_scan_0_001(benchmark::State& state) { step(state, "density=0.001", 2, bench::kLarge); }
// Linear in the number of values.
void sidco_e1_values(benchmark::State& state) {
  step(state, "law=exponential,stages=1", 1, static_cast<size_t>(state.range(0)));
}
void sidco_p2_values(benchmark::State& state) {
  step(state, "law=pareto,stages=2", 2, static_cast<size_t>(state.range(0)));
}

THINWIRE_BENCH(sidco_e1_0_01);
THINWIRE_BENCH(sidco_e1_0_001);
THINWIRE_BENCH(sidco_e_0_01)->DenseRange(2, 4);
THINWIRE_BENCH(sidco_e_0_001)->DenseRange(2, 4);
THINWIRE_BENCH(sidco_p_0_01)->DenseRange(1, 4);
THINWIRE_BENCH(sidco_p_0_001)->DenseRange(1, 4);
THINWIRE_BENCH(sidco_gp2_0_01);
THINWIRE_BENCH(sidco_scan_0_01);
THINWIRE_BENCH(sidco_scan_0_001);
THINWIRE_BENCH(sidco_e1_values)->Arg(1'000'000)->Arg(10'000'000)->Arg(100'000'000);
THINWIRE_BENCH(sidco_p2_values)->Arg(1'000'000)->Arg(10'000'000)->Arg(100'000'000);

}  // namespace
}  // namespace thinwire
