// One bit per value at 100 MB: encoding, encoding in place, decoding.
// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "bench/side_by_side.h"
#include "kernel/two_levels.h"

namespace thinwire::kernel {
namespace {

using bench::Baseline;
using bench::kLarge;

constexpr LevelBlocks kSign{.block = 256, .rule = LevelRule::kMagnitude};
constexpr LevelBlocks kMeans{.block = 512, .rule = LevelRule::kMeans};

struct Buffers {
  Buffers() {
    for (size_t i = 0; i < kLarge; ++i) values[i] = std::sin(static_cast<float>(i % 100003));
  }
  std::vector<float> values = std::vector<float>(kLarge);
  std::vector<std::byte> bytes = std::vector<std::byte>(kLarge);
};

Buffers& buffers() {
  static Buffers reused;
  return reused;
}

double scans(const Baseline& machine) { return 1.8 * machine.scan; }
double stream(const Baseline& machine) { return machine.stream; }

void encode(benchmark::State& state, LevelBlocks blocks) {
  Buffers& b = buffers();
  const auto bytes = std::span(b.bytes).first(blocks.size(kLarge));
  bench::side_by_side(
      state, kLarge, nullptr, [&] { encode_levels(b.values, blocks, bytes); }, scans);
}

void encode_in_place(benchmark::State& state, LevelBlocks blocks) {
  Buffers b;
  const auto bytes = std::span(b.bytes).first(blocks.size(kLarge));
  bench::side_by_side(
      state, kLarge, [&] { b.values = buffers().values; },
      [&] { encode_levels(b.values, blocks, bytes, b.values); }, stream);
}

void decode(benchmark::State& state, LevelBlocks blocks) {
  Buffers& b = buffers();
  const auto bytes = std::span(b.bytes).first(blocks.size(kLarge));
  encode_levels(b.values, blocks, bytes);
  std::vector<float> out(kLarge);
  bench::side_by_side(
      state, kLarge, nullptr, [&] { add_levels(bytes, blocks, 0.5f, out); }, stream);
}

void sign_encode(benchmark::State& state) { encode(state, kSign); }
void means_encode(benchmark::State& state) { encode(state, kMeans); }
void sign_encode_in_place(benchmark::State& state) { encode_in_place(state, kSign); }
void means_encode_in_place(benchmark::State& state) { encode_in_place(state, kMeans); }
void sign_decode_add(benchmark::State& state) { decode(state, kSign); }
void means_decode_add(benchmark::State& state) { decode(state, kMeans); }
THINWIRE_BENCH(sign_encode);
THINWIRE_BENCH(means_encode);
THINWIRE_BENCH(sign_encode_in_place);
THINWIRE_BENCH(means_encode_in_place);
THINWIRE_BENCH(sign_decode_add);
THINWIRE_BENCH(means_decode_add);

}  // namespace
}  // namespace thinwire::kernel
