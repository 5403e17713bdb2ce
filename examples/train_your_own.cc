// Trains a network of one's own on data of one's own: four workers, gradients compressed by SIDCo.
// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <cstdio>

#include "thinwire/torch.h"

using namespace thinwire;

// Two spirals, one in each other; sample 2 k is on the first, 2 k + 1 on the second.
class Spirals final : public Dataset {
 public:
  Spirals(uint64_t count, float shift) : count_(count), shift_(shift) {}

  uint64_t size() const override { return count_; }

  Batch fetch(std::span<const uint64_t> ids, const FetchContext& /*context*/) const override {
    Batch batch{torch::empty({static_cast<int64_t>(ids.size()), 2}),
                torch::empty({static_cast<int64_t>(ids.size())}, torch::kInt64)};
    for (size_t i = 0; i < ids.size(); ++i) {
      const float along =
          (static_cast<float>(ids[i] / 2) + shift_) / static_cast<float>(count_ / 2);
      const float angle = 7 * along + (ids[i] % 2 == 0 ? 0.0f : 3.14159f);
      const auto row = static_cast<int64_t>(i);
      batch.inputs[row][0] = (0.1f + along) * std::cos(angle);
      batch.inputs[row][1] = (0.1f + along) * std::sin(angle);
      batch.targets[row] = static_cast<int64_t>(ids[i] % 2);
    }
    return batch;
  }

 private:
  uint64_t count_;
  float shift_;
};

struct Net : torch::nn::Module {
  torch::nn::Linear first = register_module("first", torch::nn::Linear(2, 64));
  torch::nn::Linear second = register_module("second", torch::nn::Linear(64, 64));
  torch::nn::Linear output = register_module("output", torch::nn::Linear(64, 2));

  torch::Tensor forward(const torch::Tensor& x) {
    return output(torch::relu(second(torch::relu(first(x)))));
  }
};

int main() {
  const Spirals train(1024, 0), test(256, 0.5f);
  // Any key of a recipe but those about model and data.
  const std::pair<std::string, std::string> settings[] = {{"train.batch", "64"},
                                                          {"train.epochs", "24"},
                                                          {"train.evaluate_every", "6"},
                                                          {"optimizer.name", "adam"},
                                                          {"optimizer.lr", "0.01"},
                                                          {"schedule.name", "cosine"},
                                                          {"exchange.codec", "sidco:density=0.05"}};
  const Recipe recipe{"spirals", parse_options("spirals", recipe_keys(), settings).value()};

  torch::manual_seed(1);
  std::vector<std::shared_ptr<Net>> nets;  // one per worker; all start from the first one's weights
  for (int rank = 0; rank < 4; ++rank) nets.push_back(std::make_shared<Net>());

  RunSummary summary;
  run_local(4, [&](Group& group) {  // under mpirun: with the group of make_mpi_group()
    const auto net = nets[static_cast<size_t>(group.rank())];
    Task task;
    task.module = net;
    task.forward = [net](const torch::Tensor& x) { return net->forward(x); };
    RunEvents events;
    if (group.rank() == 0)
      events.evaluation = [](const EvaluationEvent& event) {
        std::printf("epoch %2.0f: %4.1f %% wrong\n", event.epoch, 100 * event.error);
      };
    const RunSummary mine =
        train_task(recipe, {}, group, task, {.train = train, .test = test}, events);
    if (group.rank() == 0) summary = mine;
  });
  std::printf("%.1f times fewer bytes than uncompressed\n", summary.wire_ratio);
  return summary.final_test_error < 0.05 && summary.wire_ratio > 3 ? 0 : 1;
}
