// Bytes and non-zeros per rank against the number of ranks, for sparse methods: a table in
// Markdown.
//
//   traffic_table [values] [density]     262,144 and 0.01
//
// Ranks are threads; gradients are heavy-tailed, half of them common to all ranks, so that ranks
// keep some positions in common and others not. Averages over ranks and 4 steps: each has one
// leader.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string>
#include <vector>

#include "core/random.h"
#include "thinwire/exchange.h"
#include "thinwire/group.h"

namespace thinwire {
namespace {

float heavy(uint64_t seed, uint64_t step, size_t i) {
  const float unit = 2 * random_unit({.seed = seed, .use = RandomUse::kTest, .step = step}, i) - 1;
  return unit * unit * unit;
}

struct Traffic {
  double sent = 0;       // bytes, of the mean rank
  double most_sent = 0;  // of the busiest, in one step
  double received = 0;
  double non_zeros = 0;  // of the mean that all get
};

Traffic measure_traffic(int ranks, size_t count, const std::string& codec,
                        const std::string& method) {
  Traffic traffic;
  std::mutex mutex;
  run_local(ranks, [&](Group& group) {
    Store store;
    ExchangeOptions options{.codec = codec, .method = method};
    options.norms = false;
    const auto exchange =
        make_exchange(group, store, {{"w", {count}, TensorKind::kLinear}}, options);
    std::vector<float> values(count);
    constexpr uint64_t kSteps = 4;
    for (uint64_t step = 0; step < kSteps; ++step) {
      for (size_t i = 0; i < count; ++i)
        values[i] = heavy(0, step, i) + heavy(1 + static_cast<uint64_t>(group.rank()), step, i);
      exchange->start(0, {.data = values.data(), .count = count});
      const StepReport report = exchange->finish();
      const auto zeros = static_cast<size_t>(std::count(values.begin(), values.end(), 0.0f));
      const double share = 1.0 / static_cast<double>(kSteps * static_cast<uint64_t>(ranks));
      const std::lock_guard lock(mutex);
      traffic.sent += static_cast<double>(report.sent_bytes) * share;
      traffic.received += static_cast<double>(report.received_bytes) * share;
      traffic.most_sent = std::max(traffic.most_sent, static_cast<double>(report.sent_bytes));
      traffic.non_zeros += static_cast<double>(count - zeros) * share;
    }
  });
  return traffic;
}

void print_table(size_t count, const std::string& density) {
  const std::string k = "density=" + density;
  const std::pair<std::string, std::string> methods[] = {{"topk:" + k, "gather"},
                                                         {"topk:" + k, "sparse-reduce"},
                                                         {"scalecom:" + k, "shared-index"},
                                                         {"randomk:" + k, "shared-index"}};
  std::printf(
      "| ranks | method | sent, kB | busiest rank, kB | received, kB | non-zeros of the mean |\n");
  std::printf("| --- | --- | --- | --- | --- | --- |\n");
  for (const int ranks : {2, 4, 8, 16, 32, 64})
    for (const auto& [codec, method] : methods) {
      const Traffic traffic = measure_traffic(ranks, count, codec, method);
      std::printf("| %d | %s, %s | %.1f | %.1f | %.1f | %.0f |\n", ranks,
                  codec.substr(0, codec.find(':')).c_str(), method.c_str(), traffic.sent / 1e3,
                  traffic.most_sent / 1e3, traffic.received / 1e3, traffic.non_zeros);
      std::fflush(stdout);
    }
}

}  // namespace
}  // namespace thinwire

int main(int argc, char** argv) {
  const size_t count = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 262144;
  thinwire::print_table(count, argc > 2 ? argv[2] : "0.01");
}
