// Averages gradients over four ranks, each a thread, compressed by AdaComp with error feedback.
// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <cstdio>
#include <vector>

#include "thinwire/exchange.h"

using namespace thinwire;

int main() {
  const std::vector<TensorSpec> model = {{"fc1.weight", {512, 784}, TensorKind::kLinear},
                                         {"fc1.bias", {512}, TensorKind::kBias}};

  run_local(4, [&](Group& group) {
    Store store;  // remembers what messages could not carry
    const auto exchange = make_exchange(group, store, model, {.codec = "adacomp"});

    for (int step = 0; step < 3; ++step) {
      std::vector<std::vector<float>> gradients;
      for (const TensorSpec& tensor : model) {
        gradients.emplace_back(tensor.count());
        for (size_t i = 0; i < tensor.count(); ++i)
          gradients.back()[i] = std::sin(0.37f * static_cast<float>(i * (group.rank() + 2) + step));
      }

      // As a backward pass makes them: last tensor first, compressed and sent while it goes on.
      for (size_t i = model.size(); i-- > 0;)
        exchange->start(i, {.data = gradients[i].data(), .count = gradients[i].size()});
      const StepReport report = exchange->finish();  // now they hold the mean of all ranks

      if (group.rank() == 0)
        std::printf("step %d: sent %llu bytes, fp32 would have sent %llu; mean[0] = %g\n", step,
                    static_cast<unsigned long long>(report.sent_bytes),
                    static_cast<unsigned long long>(report.dense_bytes), gradients[0][0]);
    }
  });
}
