// Benchmark of Adam's step: the kernel beside libtorch's operations, ten million values in ten
// tensors, one thread.
// SPDX-License-Identifier: Apache-2.0
#include <torch/torch.h>

#include <memory>
#include <vector>

#include "bench/side_by_side.h"
#include "train/adam.h"

namespace thinwire {
namespace {

constexpr size_t kTensors = 10;
constexpr size_t kCount = 1'000'000;  // each

template <typename Optimizer>
class Side {
 public:
  Side() {
    torch::manual_seed(1);
    for (size_t i = 0; i < kTensors; ++i) {
      weights_.push_back(torch::zeros({kCount}).requires_grad_(true));
      weights_.back().mutable_grad() = torch::randn({kCount});
    }
    optimizer_ = std::make_unique<Optimizer>(weights_, torch::optim::AdamOptions(0.001));
  }

  void step() { optimizer_->step(); }

 private:
  std::vector<torch::Tensor> weights_;
  std::unique_ptr<Optimizer> optimizer_;
};

void adam_of_libtorch(benchmark::State& state) {
  torch::set_num_threads(1);
  Side<torch::optim::Adam> side;
  bench::side_by_side(state, kTensors * kCount, nullptr, [&] { side.step(); });
}

// The budget is libtorch's step, taken just before.
void adam_step(benchmark::State& state) {
  torch::set_num_threads(1);
  Side<Adam> side;
  Side<torch::optim::Adam> other;
  double seconds = 0;
  bench::side_by_side(
      state, kTensors * kCount, [&] { seconds = bench::seconds_of([&] { other.step(); }); },
      [&] { side.step(); }, [&](const bench::Baseline&) { return seconds; });
}

THINWIRE_BENCH(adam_of_libtorch);
THINWIRE_BENCH(adam_step);

}  // namespace
}  // namespace thinwire
