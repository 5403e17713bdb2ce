// Benchmark of exchange and optimiser together: SGD's momentum in the memory beside that at the
// optimiser.
// SPDX-License-Identifier: Apache-2.0
//
// The rest of a training step, the passes through the network, is the same in both.
#include <torch/torch.h>

#include <string>
#include <utility>
#include <vector>

#include "bench/side_by_side.h"
#include "thinwire/exchange.h"
#include "thinwire/trainer.h"
#include "train/describe.h"
#include "train/optimizer.h"
#include "train/recipe_parts.h"

namespace thinwire {
namespace {

constexpr size_t kTensors = 10;
constexpr size_t kCount = 1'000'000;  // each

struct Weights : torch::nn::Module {
  Weights() {
    for (size_t i = 0; i < kTensors; ++i)
      register_parameter("w" + std::to_string(i), torch::zeros({1000, kCount / 1000}));
  }
};

Options recipe_with(const std::string& place, const std::string& decay) {
  const std::vector<std::pair<std::string, std::string>> settings = {
      {"optimizer.momentum", "0.9"},
      {"optimizer.weight_decay", decay},
      {"exchange.codec", "topk:density=0.01"},
      {"exchange.momentum", place}};
  return parse_options("bench", recipe_keys(), settings).value();
}

// One rank, which exchanges with nobody: its own work.
class Side {
 public:
  Side(const std::string& place, const std::string& decay)
      : recipe_(recipe_with(place, decay)),
        group_(std::move(make_local_groups(1).front())),
        parameters_(trainable_parameters(weights_)),
        optimizer_(make_optimizer(recipe_, weights_, 1)) {
    std::vector<TensorSpec> specs;
    for (const TrainableParameter& parameter : parameters_) specs.push_back(parameter.spec);
    exchange_ = make_exchange(*group_, store_, specs, exchange_options(recipe_));
  }

  void fill() {
    torch::manual_seed(1);
    for (TrainableParameter& parameter : parameters_)
      parameter.tensor.mutable_grad() = torch::randn_like(parameter.tensor).pow_(3);
  }

  void step() {
    for (size_t i = parameters_.size(); i-- > 0;)
      exchange_->start(i, {.data = parameters_[i].tensor.mutable_grad().mutable_data_ptr<float>(),
                           .count = kCount});
    exchange_->finish();
    optimizer_->step();
  }

 private:
  const Options recipe_;
  Weights weights_;
  std::unique_ptr<Group> group_;
  Store store_;
  std::vector<TrainableParameter> parameters_;
  std::unique_ptr<torch::optim::Optimizer> optimizer_;
  std::unique_ptr<Exchange> exchange_;
};

void at_optimizer(benchmark::State& state, const std::string& decay) {
  torch::set_num_threads(1);
  Side side("optimizer", decay);
  bench::side_by_side(
      state, kTensors * kCount, [&] { side.fill(); }, [&] { side.step(); });
}

// The budget is 1.15 times the step with the momentum at the optimiser, taken just before.
void in_memory(benchmark::State& state, const std::string& decay) {
  torch::set_num_threads(1);
  Side side("memory", decay), other("optimizer", decay);
  double seconds = 0;
  bench::side_by_side(
      state, kTensors * kCount,
      [&] {
        other.fill();
        seconds = bench::seconds_of([&] { other.step(); });
        side.fill();
      },
      [&] { side.step(); }, [&](const bench::Baseline&) { return 1.15 * seconds; });
}

void step_momentum_at_optimizer(benchmark::State& state) { at_optimizer(state, "0"); }
void step_momentum_in_memory(benchmark::State& state) { in_memory(state, "0"); }
void step_decayed_at_optimizer(benchmark::State& state) { at_optimizer(state, "0.0005"); }
void step_decayed_in_memory(benchmark::State& state) { in_memory(state, "0.0005"); }

THINWIRE_BENCH(step_momentum_at_optimizer);
THINWIRE_BENCH(step_momentum_in_memory);
THINWIRE_BENCH(step_decayed_at_optimizer);
THINWIRE_BENCH(step_decayed_in_memory);

}  // namespace
}  // namespace thinwire
