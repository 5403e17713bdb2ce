// fp32 to sixteen bits and back at 100 MB, against memcpy of the fp32 side.
// SPDX-License-Identifier: Apache-2.0
#include "bench/side_by_side.h"
#include "kernel/half_float.h"

namespace thinwire::kernel {
namespace {

using bench::Baseline;
using bench::kLarge;

double budget(const Baseline& machine) { return 1.2 * machine.copy; }

struct Buffers {
  std::vector<float> values = std::vector<float>(kLarge, 0.37f);
  std::vector<uint16_t> bits = std::vector<uint16_t>(kLarge);
};

Buffers& buffers() {
  static Buffers reused;
  return reused;
}

void to_bits(benchmark::State& state, void (*encode)(std::span<const float>, std::span<std::byte>,
                                                     std::span<float>) noexcept) {
  Buffers& b = buffers();
  bench::side_by_side(
      state, kLarge, nullptr,
      [&] { encode(b.values, std::as_writable_bytes(std::span(b.bits)), {}); }, budget);
}

void from_bits(benchmark::State& state,
               bool (*decode)(std::span<const std::byte>, std::span<float>) noexcept) {
  Buffers& b = buffers();
  bench::side_by_side(
      state, kLarge, nullptr, [&] { decode(std::as_bytes(std::span(b.bits)), b.values); }, budget);
}

void fp32_to_fp16(benchmark::State& state) { to_bits(state, to_half_saturated); }
void fp32_to_bf16(benchmark::State& state) { to_bits(state, to_bfloat_saturated); }
void fp16_to_fp32(benchmark::State& state) { from_bits(state, from_half); }
void bf16_to_fp32(benchmark::State& state) { from_bits(state, from_bfloat); }
THINWIRE_BENCH(fp32_to_fp16);
THINWIRE_BENCH(fp32_to_bf16);
THINWIRE_BENCH(fp16_to_fp32);
THINWIRE_BENCH(bf16_to_fp32);

}  // namespace
}  // namespace thinwire::kernel
