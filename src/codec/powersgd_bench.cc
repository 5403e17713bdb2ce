// powersgd on a matrix of 25 M values: a step with residual feedback, and decoding.
// SPDX-License-Identifier: Apache-2.0
#include <memory>
#include <string>

#include "codec/testing/sparsifier_bench.h"

namespace thinwire {
namespace {

using bench::Baseline;
using bench::Budget;
using bench::kLarge;

constexpr size_t kRows = 5000;
static_assert(kRows * kRows == kLarge);

StreamSpec stream() {
  return single_tensor({.name = "w", .shape = {kRows, kRows}, .kind = TensorKind::kLinear});
}

// values = gradient + residual with their moments, then both rounds of a rank alone and the
// remainder.
void step(benchmark::State& state, const std::string& spec, const Budget& budget) {
  const auto codec = std::move(make_codec(spec).value().codec);
  const auto encoder = codec->make_encoder(stream());
  const auto gradient = bench::laplace_gradient(kLarge);
  const AlignedVector<float> residual(kLarge);
  AlignedVector<float> values(kLarge);
  std::vector<std::byte> payload(codec->max_encoded_size(stream()));
  uint64_t number = 0;
  const auto work = [&] {
    const Moments moments = kernel::add_with_moments(gradient, residual, values);
    const Call call{.step = number++};
    encoder->encode({.values = values, .fresh = {}, .moments = moments}, call, payload, values);
    encoder->commit();
  };
  work();  // draws the first factor
  bench::side_by_side(state, kLarge, nullptr, work, budget);
  state.counters["bits"] = 8.0 * static_cast<double>(payload.size()) / kLarge;
}

void decode(benchmark::State& state, const std::string& spec) {
  const auto codec = std::move(make_codec(spec).value().codec);
  std::vector<std::byte> payload(codec->max_encoded_size(stream()));
  codec->make_encoder(stream())->encode({.values = bench::laplace_gradient(kLarge)}, {}, payload,
                                        {});
  const auto decoder = codec->make_decoder(stream());
  AlignedVector<float> out(kLarge);
  bench::side_by_side(state, kLarge, nullptr, [&] {
    if (!decoder->decode_add(payload, 0.5f, out)) state.SkipWithError("refused");
  });
}

void rank_1(benchmark::State& state) {
  step(state, "powersgd:rank=1",
       [](const Baseline& machine) { return 2 * (machine.stream + 2 * machine.scan); });
}
void rank_4(benchmark::State& state) {
  step(state, "powersgd:rank=4",
       [](const Baseline& machine) { return 4 * (machine.stream + 2 * machine.scan); });
}
void rank_4_alternate(benchmark::State& state) {
  step(state, "powersgd:rank=4,alternate=true", nullptr);
}
void rank_1_decode_add(benchmark::State& state) { decode(state, "powersgd:rank=1"); }
void rank_4_decode_add(benchmark::State& state) { decode(state, "powersgd:rank=4"); }

THINWIRE_BENCH(rank_1);
THINWIRE_BENCH(rank_4);
THINWIRE_BENCH(rank_4_alternate);
THINWIRE_BENCH(rank_1_decode_add);
THINWIRE_BENCH(rank_4_decode_add);

}  // namespace
}  // namespace thinwire
