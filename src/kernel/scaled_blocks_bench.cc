// Blocks of 8 and 4 bits at 100 MB: encoding, encoding in place, decoding.
// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "bench/side_by_side.h"
#include "kernel/scaled_blocks.h"

namespace thinwire::kernel {
namespace {

using bench::Baseline;
using bench::kLarge;

struct Buffers {
  Buffers() {
    for (size_t i = 0; i < kLarge; ++i) values[i] = std::sin(static_cast<float>(i % 100003));
  }
  std::vector<float> values = std::vector<float>(kLarge);
  std::vector<std::byte> bytes = std::vector<std::byte>(2 * kLarge);
};

Buffers& buffers() {
  static Buffers reused;
  return reused;
}

void encode(benchmark::State& state, ScaledBlocks blocks) {
  Buffers& b = buffers();
  const auto bytes = std::span(b.bytes).first(blocks.size(kLarge));
  bench::side_by_side(
      state, kLarge, nullptr, [&] { quantise_blocks(b.values, blocks, bytes); },
      [](const Baseline& machine) { return 1.8 * machine.scan; });
}

void encode_in_place(benchmark::State& state, ScaledBlocks blocks) {
  Buffers b;
  const auto bytes = std::span(b.bytes).first(blocks.size(kLarge));
  bench::side_by_side(
      state, kLarge, [&] { b.values = buffers().values; },
      [&] { quantise_blocks(b.values, blocks, bytes, b.values); },
      [](const Baseline& machine) { return machine.stream; });
}

void decode(benchmark::State& state, ScaledBlocks blocks) {
  Buffers& b = buffers();
  const auto bytes = std::span(b.bytes).first(blocks.size(kLarge));
  quantise_blocks(b.values, blocks, bytes);
  std::vector<float> out(kLarge);
  bench::side_by_side(
      state, kLarge, nullptr, [&] { add_blocks(bytes, blocks, 0.5f, out); },
      [](const Baseline& machine) { return machine.stream; });
}

void bits8_encode(benchmark::State& state) { encode(state, {256, 8}); }
void bits4_encode(benchmark::State& state) { encode(state, {256, 4}); }
void bits8_encode_in_place(benchmark::State& state) { encode_in_place(state, {256, 8}); }
void bits4_encode_in_place(benchmark::State& state) { encode_in_place(state, {256, 4}); }
void bits8_decode_add(benchmark::State& state) { decode(state, {256, 8}); }
void bits4_decode_add(benchmark::State& state) { decode(state, {256, 4}); }
THINWIRE_BENCH(bits8_encode);
THINWIRE_BENCH(bits4_encode);
THINWIRE_BENCH(bits8_encode_in_place);
THINWIRE_BENCH(bits4_encode_in_place);
THINWIRE_BENCH(bits8_decode_add);
THINWIRE_BENCH(bits4_decode_add);

}  // namespace
}  // namespace thinwire::kernel
