// Selection beside a scan, at the densities sparsifiers use.
// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <vector>

#include "bench/side_by_side.h"
#include "core/random.h"
#include "kernel/select.h"

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

// The threshold that a fraction range(0) / 1e5 of normals passes.
float threshold(double density) {
  double low = 0, high = 10;
  for (int i = 0; i < 60; ++i) {
    const double middle = (low + high) / 2;
    (std::erfc(middle / std::sqrt(2.0)) > density ? low : high) = middle;
  }
  return static_cast<float>(low);
}

void run(benchmark::State& state, bool zero) {
  const double density = static_cast<double>(state.range(0)) * 1e-5;
  const auto room = static_cast<size_t>(1.1 * density * bench::kLarge) + 100;
  const float above = threshold(density);
  std::vector<uint32_t> positions(room);
  std::vector<float> kept(room);
  std::vector<float> values;
  kernel::Selection got;
  bench::side_by_side(
      state, bench::kLarge,
      [&] {
        if (zero || values.empty()) values = normals();
      },
      [&] {
        got = kernel::select_above(values, 0, above, positions, kept,
                                   zero ? std::span<float>(values) : std::span<float>());
      });
  state.counters["density"] = static_cast<double>(got.kept) / static_cast<double>(got.next);
}

void select_above(benchmark::State& state) { run(state, false); }
void select_above_and_zero(benchmark::State& state) { run(state, true); }
void count_above(benchmark::State& state) {
  bench::side_by_side(state, bench::kLarge, nullptr,
                      [] { benchmark::DoNotOptimize(kernel::count_above(normals(), 2.0f)); });
}

THINWIRE_BENCH(select_above)->Arg(10)->Arg(100)->Arg(1000)->Arg(10000)->Arg(25000);
THINWIRE_BENCH(select_above_and_zero)->Arg(100)->Arg(1000)->Arg(10000);
THINWIRE_BENCH(count_above);

}  // namespace
}  // namespace thinwire
