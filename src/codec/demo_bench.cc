// demo on a matrix of 25 M values: encoding with what it leaves, and decoding.
// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <utility>
#include <vector>

#include "codec/testing/sparsifier_bench.h"

namespace thinwire {
namespace {

using bench::kLarge;

constexpr size_t kRows = 5000;
static_assert(kRows * kRows == kLarge);

StreamSpec stream() {
  return single_tensor({.name = "w", .shape = {kRows, kRows}, .kind = TensorKind::kLinear});
}

void encode(benchmark::State& state, const std::string& spec) {
  const auto codec = std::move(make_codec(spec).value().codec);
  const auto encoder = codec->make_encoder(stream());
  AlignedVector<float> rest(kLarge);
  std::vector<std::byte> payload(codec->max_encoded_size(stream()));
  Encoded encoded;
  const auto work = [&] {
    encoded = encoder->encode({.values = bench::laplace_gradient(kLarge)}, {}, payload, rest);
  };
  work();  // grows the buffers
  bench::side_by_side(state, kLarge, nullptr, work);
  state.counters["bits"] = 8.0 * static_cast<double>(encoded.size) / kLarge;
}

void decode(benchmark::State& state, const std::string& spec) {
  const auto codec = std::move(make_codec(spec).value().codec);
  std::vector<std::byte> payload(codec->max_encoded_size(stream()));
  payload.resize(codec->make_encoder(stream())
                     ->encode({.values = bench::laplace_gradient(kLarge)}, {}, payload, {})
                     .size);
  const auto decoder = codec->make_decoder(stream());
  AlignedVector<float> out(kLarge);
  bench::side_by_side(state, kLarge, nullptr, [&] {
    if (!decoder->decode_add(payload, 0.5f, out)) state.SkipWithError("refused");
  });
}

void demo_64(benchmark::State& state) { encode(state, "demo"); }
void demo_32(benchmark::State& state) { encode(state, "demo:chunk=32"); }
void demo_64_decode_add(benchmark::State& state) { decode(state, "demo"); }

THINWIRE_BENCH(demo_64);
THINWIRE_BENCH(demo_32);
THINWIRE_BENCH(demo_64_decode_add);

}  // namespace
}  // namespace thinwire
