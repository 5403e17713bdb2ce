// Sketches of 25 M values: a step with residual feedback, and decoding.
// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <vector>

#include "codec/testing/sparsifier_bench.h"

namespace thinwire {
namespace {

void decode(benchmark::State& state, const std::string& spec) {
  const NamedCodec named = make_codec(spec).value();
  const StreamSpec stream = single_tensor({.name = "w", .shape = {bench::kLarge}});
  std::vector<std::byte> payload(named.codec->max_encoded_size(stream));
  named.codec->make_encoder(stream)->encode({.values = bench::laplace_gradient(bench::kLarge)}, {},
                                            payload, {});
  const auto decoder = named.codec->make_decoder(stream);
  AlignedVector<float> out(bench::kLarge);
  bench::side_by_side(state, bench::kLarge, nullptr, [&] {
    if (!decoder->decode_add(payload, 0.5f, out)) state.SkipWithError("refused");
  });
}

void srht_0_1(benchmark::State& state) { bench::feedback_step(state, "srht:density=0.1"); }
void srht_0_01(benchmark::State& state) { bench::feedback_step(state, "srht:density=0.01"); }
void srht_0_1_decode_add(benchmark::State& state) { decode(state, "srht:density=0.1"); }
void countsketch_0_1(benchmark::State& state) {
  bench::feedback_step(state, "countsketch:density=0.1");
}
void countsketch_3_rows(benchmark::State& state) {
  bench::feedback_step(state, "countsketch:density=0.1,rows=3");
}
void countsketch_0_1_decode_add(benchmark::State& state) {
  decode(state, "countsketch:density=0.1");
}

THINWIRE_BENCH(srht_0_1);
THINWIRE_BENCH(srht_0_01);
THINWIRE_BENCH(srht_0_1_decode_add);
THINWIRE_BENCH(countsketch_0_1);
THINWIRE_BENCH(countsketch_3_rows);
THINWIRE_BENCH(countsketch_0_1_decode_add);

}  // namespace
}  // namespace thinwire
