// Exact top-k, the residual left in the same passes.
// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <vector>

#include "bench/side_by_side.h"
#include "core/random.h"
#include "kernel/baseline.h"
#include "thinwire/codec.h"

namespace thinwire {
namespace {

const std::vector<float>& normals() {
  static const std::vector<float> values = [] {
    std::vector<float> made(bench::kLarge);
    for (size_t i = 0; i < made.size(); ++i) made[i] = random_normal({.seed = 1}, i);
    return made;
  }();
  return values;
}

// Timed alone, against the budget of design section 8 less the stream that feedback itself is.
void topk(benchmark::State& state, const std::string& spec, double budget) {
  const NamedCodec named = make_codec(spec).value();
  const StreamSpec stream = single_tensor({.name = "t", .shape = {bench::kLarge}});
  const auto encoder = named.codec->make_encoder(stream);
  std::vector<std::byte> out(named.codec->max_encoded_size(stream));
  std::vector<float> values;
  bench::side_by_side(
      state, bench::kLarge, [&] { values = normals(); },
      [&] { encoder->encode({.values = values, .fresh = {}, .moments = {}}, {}, out, values); },
      [&](const bench::Baseline& base) {
        return budget * (base.stream + base.scan) - base.stream;
      });
}

void topk_0_001(benchmark::State& state) { topk(state, "topk:density=0.001", 1.6); }
void topk_0_01(benchmark::State& state) { topk(state, "topk:density=0.01", 2.2); }
void topk_0_01_bf16(benchmark::State& state) { topk(state, "topk:density=0.01,values=bf16", 2.2); }

THINWIRE_BENCH(topk_0_001);
THINWIRE_BENCH(topk_0_01);
THINWIRE_BENCH(topk_0_01_bf16);

}  // namespace
}  // namespace thinwire
