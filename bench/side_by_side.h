// Measures an operation and the memory's speed in turn, in one run, so that a machine's noise
// cancels out.
// SPDX-License-Identifier: Apache-2.0
//
// Machines are shared: absolute times mean little, ratios within one run a lot. Every iteration
// times scan, stream and copy (design budgets are multiples of them) and then the operation;
// medians count.
#pragma once

#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <functional>
#include <span>
#include <vector>

#include "kernel/baseline.h"

namespace thinwire::bench {

// Values of the large case: 100 MB, more than any cache.
inline constexpr size_t kLarge = 25'000'000;

// Seconds of one read (sum of |x|), of r[i] += g[i], and of memcpy over `count` floats.
struct Baseline {
  double scan = 0;
  double stream = 0;
  double copy = 0;
};

// A budget as a function of the machine's own figures: [](const Baseline& b) { return 1.3 * ... }.
using Budget = std::function<double(const Baseline&)>;

inline double seconds_of(const std::function<void()>& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

inline double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

inline Baseline measure_baseline(size_t count) {
  static std::vector<float> from, to;
  if (from.size() < count) {
    from.assign(count, 1e-3f);
    to.assign(count, 0.0f);
  }
  const std::span<const float> values(from.data(), count);
  const std::span<float> target(to.data(), count);
  Baseline baseline;
  baseline.scan = seconds_of([&] { benchmark::DoNotOptimize(kernel::baseline_scan(values)); });
  baseline.stream = seconds_of([&] { kernel::baseline_stream(values, target); });
  baseline.copy = seconds_of([&] {
    std::memcpy(target.data(), values.data(), values.size_bytes());
    benchmark::ClobberMemory();
  });
  return baseline;
}

// Runs `prepare` (untimed) and `work` (timed) for every iteration. Counters, all medians:
//   gb_per_s     4 * count bytes of input per second of work
//   over_stream  work / stream
//   over_budget  work / budget(baseline); below 1 is met. Absent without a budget.
//   scan_gb_s, stream_gb_s, stream_ms   what this machine did meanwhile; GB of one of the arrays
inline void side_by_side(benchmark::State& state, size_t count,
                         const std::function<void()>& prepare, const std::function<void()>& work,
                         const Budget& budget = nullptr) {
  std::vector<double> times, over_stream, over_budget, scans, streams;
  for (auto _ : state) {
    const Baseline baseline = measure_baseline(count);
    if (prepare) prepare();
    const double seconds = seconds_of(work);
    state.SetIterationTime(seconds);
    times.push_back(seconds);
    over_stream.push_back(seconds / baseline.stream);
    if (budget) over_budget.push_back(seconds / budget(baseline));
    scans.push_back(baseline.scan);
    streams.push_back(baseline.stream);
  }
  const double bytes = 4.0 * static_cast<double>(count);
  state.counters["gb_per_s"] = bytes / median(times) * 1e-9;
  state.counters["over_stream"] = median(over_stream);
  if (budget) state.counters["over_budget"] = median(over_budget);
  state.counters["scan_gb_s"] = bytes / median(scans) * 1e-9;
  state.counters["stream_gb_s"] = bytes / median(streams) * 1e-9;
  state.counters["stream_ms"] = median(streams) * 1e3;
}

}  // namespace thinwire::bench

// Registers `function(benchmark::State&)`, timed by side_by_side, for 21 iterations.
#define THINWIRE_BENCH(function) \
  BENCHMARK(function)->UseManualTime()->Iterations(21)->Unit(benchmark::kMillisecond)
