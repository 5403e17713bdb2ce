// Random positions: a step with residual feedback, and what drawing them costs the receiver.
// SPDX-License-Identifier: Apache-2.0
#include "codec/testing/sparsifier_bench.h"

namespace thinwire {
namespace {

// A fixed threshold's budget: nothing is scanned, but positions are drawn.
double budget(const bench::Baseline& base) { return 1.3 * (base.stream + base.scan); }

void randomk_0_001(benchmark::State& state) {
  bench::feedback_step(state, "randomk:density=0.001", budget);
}
void randomk_0_01(benchmark::State& state) { bench::feedback_step(state, "randomk", budget); }

// Kept values per second, of 100,000 values, which fit a cache; payloads of `keys` different keys
// in turn.
void randomk_decode(benchmark::State& state, uint64_t keys) {
  constexpr size_t kCount = 100'000;
  const NamedCodec named =
      make_codec("randomk:density=" + std::to_string(1e-5 * static_cast<double>(state.range(0))))
          .value();
  const StreamSpec stream = single_tensor({.name = "w", .shape = {kCount}});
  const auto encoder = named.codec->make_encoder(stream);
  std::vector<std::vector<std::byte>> payloads(keys);
  Encoded encoded;
  for (uint64_t step = 0; step < keys; ++step) {
    payloads[step].resize(named.codec->max_encoded_size(stream));
    encoded = encoder->encode({.values = bench::laplace_gradient(kCount)}, {.step = step},
                              payloads[step], {});
  }
  const auto decoder = named.codec->make_decoder(stream);
  std::vector<float> out(kCount);
  const size_t rounds = 2'000'000 / encoded.kept;
  const double kept = static_cast<double>(rounds * encoded.kept);
  bench::side_by_side(
      state, kCount, nullptr,
      [&] {
        for (size_t i = 0; i < rounds; ++i)
          decoder->decode_add(payloads[i % keys], 0.5f, out).or_throw();
      },
      [&](const bench::Baseline&) { return kept / 150e6; });
}
// Of one rank, and of the second to last of ranks that share their positions.
void randomk_decode_drawing(benchmark::State& state) { randomk_decode(state, 2); }
void randomk_decode_again(benchmark::State& state) { randomk_decode(state, 1); }

THINWIRE_BENCH(randomk_0_001);
THINWIRE_BENCH(randomk_0_01);
THINWIRE_BENCH(randomk_decode_drawing)->Arg(100)->Arg(1000)->Arg(10000);
THINWIRE_BENCH(randomk_decode_again)->Arg(100)->Arg(1000)->Arg(10000);

}  // namespace
}  // namespace thinwire
