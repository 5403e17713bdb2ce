// AdaComp in its steady state on 25 M values: with feedback, encoding alone, decoding.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <random>
#include <string>

#include "bench/side_by_side.h"
#include "core/aligned.h"
#include "kernel/vector_moments.h"
#include "thinwire/codec.h"

namespace thinwire {
namespace {

using bench::Baseline;
using bench::kLarge;

StreamSpec stream_of(size_t count) {
  return single_tensor({.name = "w", .shape = {count}, .kind = TensorKind::kLinear});
}

// A learner after `steps` steps of Gaussian gradients: 250,000 values, repeated 100 times.
struct Learner {
  Learner(size_t bin, int steps)
      : codec(std::move(make_codec("adacomp:bin_linear=" + std::to_string(bin)).value().codec)),
        payload(codec->max_encoded_size(stream_of(kLarge))) {
    const size_t tile = kLarge / 100;
    std::minstd_rand random(1);
    std::normal_distribution<float> normal;
    for (int i = 0; i < steps; ++i) {
      if (i > 0) {
        prepare(tile);
        encode(tile);
        std::copy_n(sum.begin(), tile, residual.begin());
      }
      std::generate_n(gradient.begin(), tile, [&] { return normal(random); });
    }
    for (size_t at = tile; at < kLarge; at += tile) {
      std::copy_n(gradient.begin(), tile, &gradient[at]);
      std::copy_n(residual.begin(), tile, &residual[at]);
    }
  }

  void prepare(size_t count) {
    kernel::add_with_moments(std::span(residual).first(count), std::span(gradient).first(count),
                             std::span(sum).first(count));
  }

  void encode(size_t count) {
    encoded = codec->make_encoder(stream_of(count))
                  ->encode({.values = std::span(sum).first(count),
                            .fresh = std::span(gradient).first(count)},
                           {}, payload, std::span(sum).first(count));
  }

  std::unique_ptr<const Codec> codec;
  std::vector<float> gradient = std::vector<float>(kLarge);
  AlignedVector<float> residual = AlignedVector<float>(kLarge), sum = residual;
  std::vector<std::byte> payload;
  Encoded encoded;
};

constexpr int kSteady = 150;

void report(benchmark::State& state, const Learner& learner) {
  state.counters["ratio"] = 4.0 * kLarge / static_cast<double>(learner.encoded.size);
}

// What a step costs: forming G in a second buffer, then encoding in place there.
void with_feedback(benchmark::State& state, size_t bin, int steps, double streams) {
  Learner learner(bin, steps);
  bench::side_by_side(
      state, kLarge, nullptr,
      [&] {
        learner.prepare(kLarge);
        learner.encode(kLarge);
      },
      streams == 0 ? bench::Budget() : [=](const Baseline& b) { return streams * b.stream; });
  report(state, learner);
}

void encode_alone(benchmark::State& state, size_t bin) {
  Learner learner(bin, kSteady);
  bench::side_by_side(
      state, kLarge, [&] { learner.prepare(kLarge); }, [&] { learner.encode(kLarge); });
  report(state, learner);
}

void decode(benchmark::State& state, size_t bin) {
  Learner learner(bin, kSteady);
  learner.prepare(kLarge);
  learner.encode(kLarge);
  const auto decoder = learner.codec->make_decoder(stream_of(kLarge));
  const auto payload = std::span(learner.payload).first(learner.encoded.size);
  bench::side_by_side(state, kLarge, nullptr, [&] {
    if (!decoder->decode_add(payload, 0.5f, learner.sum)) state.SkipWithError("refused");
  });
  report(state, learner);
}

void adacomp_500_with_feedback(benchmark::State& state) { with_feedback(state, 500, kSteady, 2.5); }
void adacomp_50_with_feedback(benchmark::State& state) { with_feedback(state, 50, kSteady, 3.5); }
void adacomp_500_first_step(benchmark::State& state) { with_feedback(state, 500, 1, 0); }
void adacomp_50_first_step(benchmark::State& state) { with_feedback(state, 50, 1, 0); }
void adacomp_500_encode(benchmark::State& state) { encode_alone(state, 500); }
void adacomp_50_encode(benchmark::State& state) { encode_alone(state, 50); }
void adacomp_500_decode_add(benchmark::State& state) { decode(state, 500); }
void adacomp_50_decode_add(benchmark::State& state) { decode(state, 50); }
THINWIRE_BENCH(adacomp_500_with_feedback);
THINWIRE_BENCH(adacomp_50_with_feedback);
THINWIRE_BENCH(adacomp_500_first_step);
THINWIRE_BENCH(adacomp_50_first_step);
THINWIRE_BENCH(adacomp_500_encode);
THINWIRE_BENCH(adacomp_50_encode);
THINWIRE_BENCH(adacomp_500_decode_add);
THINWIRE_BENCH(adacomp_50_decode_add);

}  // namespace
}  // namespace thinwire
