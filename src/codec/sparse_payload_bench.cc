// Sparse payloads: bytes of the positions beside their entropy, and kept values per second.
// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <vector>

#include "bench/side_by_side.h"
#include "codec/sparse_payload.h"
#include "core/random.h"

namespace thinwire {
namespace {

// 25 M x density random positions when `large`; otherwise 100,000 values, which fit a cache.
struct Case {
  Case(int64_t density_1e5, bool large) : count(large ? bench::kLarge : 100'000) {
    const double density = static_cast<double>(density_1e5) * 1e-5;
    for (uint64_t i = 0; i < count; ++i)
      if (random_unit({.seed = 1}, i) < density) positions.push_back(static_cast<uint32_t>(i));
    for (size_t i = 0; i < positions.size(); ++i)
      values.push_back(random_normal({.seed = 2}, i) * 1e-3f);
    payload.resize(max_sparse_size(count, positions.size(), ValueFormat::kFp32));  // the longest
  }
  double entropy_bits() const {
    const auto log2_factorial = [](size_t n) {
      return std::lgamma(static_cast<double>(n) + 1) / std::log(2.0);
    };
    const size_t kept = positions.size();
    return log2_factorial(count) - log2_factorial(kept) - log2_factorial(count - kept);
  }
  size_t count;
  std::vector<uint32_t> positions;
  std::vector<float> values;
  std::vector<std::byte> payload;
};

// Counters of interest: bits per position and how far they are above entropy (budget: 0.03).
void write_sparse_payload(benchmark::State& state) {
  Case it(state.range(0), true);
  size_t size = 0;
  bench::side_by_side(state, it.count, nullptr, [&] {
    size = write_sparse(it.positions, it.values, ValueFormat::kFp32, it.payload);
  });
  const auto kept = static_cast<double>(it.positions.size());
  const double bits = 8.0 * static_cast<double>(size) - 32 * kept;
  state.counters["bits"] = bits / kept;
  state.counters["over_entropy"] = bits / it.entropy_bits() - 1;
}

// Budget: 150 M kept values per second, from and into a cache.
void add_sparse_payload(benchmark::State& state) {
  Case it(state.range(0), false);
  const auto format = static_cast<ValueFormat>(state.range(1));
  const size_t size = write_sparse(it.positions, it.values, format, it.payload);
  const auto payload = std::span<const std::byte>(it.payload).first(size);
  std::vector<float> out(it.count);
  const size_t rounds = 2'000'000 / it.positions.size();
  const double kept = static_cast<double>(rounds * it.positions.size());
  std::vector<double> times;
  bench::side_by_side(
      state, it.count, nullptr,
      [&] {
        times.push_back(bench::seconds_of([&] {
          for (size_t i = 0; i < rounds; ++i) add_sparse(payload, format, 0.5f, out).or_throw();
        }));
      },
      [&](const bench::Baseline&) { return kept / 150e6; });
  state.counters["gb_per_s"] = 4 * kept / bench::median(times) * 1e-9;  // of values decoded
  state.counters["kept_m_per_s"] = kept / bench::median(times) * 1e-6;
}

THINWIRE_BENCH(write_sparse_payload)->Arg(10)->Arg(100)->Arg(1000)->Arg(5840)->Arg(10000);
THINWIRE_BENCH(add_sparse_payload)
    ->Args({100, 0})
    ->Args({1000, 0})
    ->Args({10000, 0})
    ->Args({1000, 1})
    ->Args({1000, 2})
    ->Args({1000, 3})
    ->Args({1000, 4});

}  // namespace
}  // namespace thinwire
