// Exact top-k with the pass that forms its values: what one step with residual feedback costs.
// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <vector>

#include "bench/side_by_side.h"
#include "core/aligned.h"
#include "core/random.h"
#include "kernel/vector_moments.h"
#include "thinwire/codec.h"

namespace thinwire {
namespace {

const AlignedVector<float>& gradient() {
  static const AlignedVector<float> values = [] {
    AlignedVector<float> made(bench::kLarge);
    for (size_t i = 0; i < made.size(); ++i) made[i] = random_normal({.seed = 1}, i);
    return made;
  }();
  return values;
}

// prepare and encode; the budget is a multiple of stream + scan.
void topk(benchmark::State& state, const std::string& spec, double budget) {
  const NamedCodec named = make_codec(spec).value();
  const StreamSpec stream = single_tensor({.name = "t", .shape = {bench::kLarge}});
  const auto encoder = named.codec->make_encoder(stream);
  const AlignedVector<float> residual(bench::kLarge);
  AlignedVector<float> values(bench::kLarge);
  std::vector<std::byte> out(named.codec->max_encoded_size(stream));
  bench::side_by_side(
      state, bench::kLarge, nullptr,
      [&] {
        const Moments moments = kernel::add_with_moments(gradient(), residual, values);
        encoder->encode({.values = values, .fresh = {}, .moments = moments}, {}, out, values);
      },
      [&](const bench::Baseline& base) { return budget * (base.stream + base.scan); });
}

void topk_0_001(benchmark::State& state) { topk(state, "topk:density=0.001", 1.6); }
void topk_0_01(benchmark::State& state) { topk(state, "topk:density=0.01", 2.2); }
void topk_0_01_bf16(benchmark::State& state) { topk(state, "topk:density=0.01,values=bf16", 2.2); }

THINWIRE_BENCH(topk_0_001);
THINWIRE_BENCH(topk_0_01);
THINWIRE_BENCH(topk_0_01_bf16);

}  // namespace
}  // namespace thinwire
