// Exact top-k with the pass that forms its values: what one step with residual feedback costs.
// SPDX-License-Identifier: Apache-2.0
#include <string>

#include "codec/testing/sparsifier_bench.h"

namespace thinwire {
namespace {

void topk(benchmark::State& state, const std::string& spec, double budget) {
  bench::feedback_step(
      state, spec, [&](const bench::Baseline& base) { return budget * (base.stream + base.scan); });
}

void topk_0_001(benchmark::State& state) { topk(state, "topk:density=0.001", 1.6); }
void topk_0_01(benchmark::State& state) { topk(state, "topk:density=0.01", 2.2); }
void topk_0_01_bf16(benchmark::State& state) { topk(state, "topk:density=0.01,values=bf16", 2.2); }
// Blocks of 64 keep one value each, of 512 and 4096 a hundredth.
void topk_blocks(benchmark::State& state) {
  topk(state, "topk:density=0.01,block=" + std::to_string(state.range(0)), 2.2);
}

THINWIRE_BENCH(topk_0_001);
THINWIRE_BENCH(topk_0_01);
THINWIRE_BENCH(topk_0_01_bf16);
THINWIRE_BENCH(topk_blocks)->Arg(64)->Arg(512)->Arg(4096)->Arg(65536);

}  // namespace
}  // namespace thinwire
