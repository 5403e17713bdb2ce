// For tests: a small classification problem, networks for it, and runs of it on threads.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/torch.h>

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "core/random.h"
#include "thinwire/torch.h"

namespace thinwire {

// Points in eight dimensions; the class is which of the first three coordinates is the largest.
class ToyData final : public Dataset {
 public:
  explicit ToyData(uint64_t size, uint32_t part = 0)
      : inputs_(torch::empty({static_cast<int64_t>(size), 8})) {
    const RandomKey key{.seed = 5, .use = RandomUse::kTest, .step = 0, .stream = part};
    auto* values = inputs_.mutable_data_ptr<float>();
    for (uint64_t i = 0; i < size * 8; ++i) values[i] = random_normal(key, i);
    targets_ = inputs_.narrow(1, 0, 3).argmax(1);
  }

  uint64_t size() const override { return static_cast<uint64_t>(inputs_.size(0)); }
  Batch fetch(std::span<const uint64_t> ids, const FetchContext& /*context*/) const override {
    std::vector<int64_t> rows(ids.begin(), ids.end());
    const torch::Tensor index = torch::tensor(rows, torch::kInt64);
    return {inputs_.index_select(0, index), targets_.index_select(0, index)};
  }

 private:
  torch::Tensor inputs_, targets_;
};

// 8 - hidden - hidden - 3, with dropout or batch norm on request.
struct ToyNet : torch::nn::Module {
  explicit ToyNet(double dropout_given = 0, bool norm_given = false, int64_t hidden = 16)
      : dropout(dropout_given), normed(norm_given) {
    first = register_module("first", torch::nn::Linear(8, hidden));
    second = register_module("second", torch::nn::Linear(hidden, hidden));
    output = register_module("output", torch::nn::Linear(hidden, 3));
    if (normed) norm = register_module("norm", torch::nn::BatchNorm1d(hidden));
    const torch::NoGradGuard no_grad;
    uint32_t stream = 100;
    for (auto& item : named_parameters()) {
      torch::Tensor& parameter = item.value();
      if (parameter.dim() < 2) {
        parameter.fill_(item.key() == "norm.weight" ? 1 : 0);
        continue;
      }
      const RandomKey key{.seed = 1, .use = RandomUse::kTest, .step = 0, .stream = stream++};
      for (int64_t i = 0; i < parameter.numel(); ++i)
        parameter.view(-1)[i] = 0.3f * random_normal(key, static_cast<uint64_t>(i));
    }
  }

  torch::Tensor forward(const torch::Tensor& inputs) {
    torch::Tensor x = first(inputs);
    if (normed) x = norm(x);
    x = torch::relu(x);
    if (dropout > 0) x = counted_dropout(x, dropout, is_training());
    return output(torch::relu(second(x)));
  }

  double dropout;
  bool normed;
  torch::nn::Linear first = nullptr, second = nullptr, output = nullptr;
  torch::nn::BatchNorm1d norm = nullptr;
};

inline Task task_of_net(const std::shared_ptr<ToyNet>& net) {
  Task task;
  task.module = net;
  task.forward = [net](const torch::Tensor& inputs) { return net->forward(inputs); };
  return task;
}

using Settings = std::vector<std::pair<std::string, std::string>>;

inline Recipe toy_recipe(const Settings& given) {
  Settings all = {{"train.batch", "20"},      {"train.epochs", "2"}, {"optimizer.lr", "0.1"},
                  {"run.threads", "1"},       {"train.seed", "3"},   {"train.evaluate_batch", "16"},
                  {"exchange.bucket_kb", "1"}};
  for (const auto& [key, value] : given) {
    std::erase_if(all, [&](const auto& row) { return row.first == key; });
    all.emplace_back(key, value);
  }
  return {.name = "toy", .options = parse_options("toy", recipe_keys(), all).value()};
}

struct ToyOptions {
  Settings settings = {};
  RunPlaces places = {};
  double dropout = 0;
  bool norm = false;
  int64_t hidden = 16;
  uint64_t samples = 90;  // two epochs of batches of 20: ten steps, two of them of 10 samples
  uint64_t held_out = 0;
  uint64_t stop_after = UINT64_MAX;                       // steps
  std::function<void(int rank, Task&)> change = nullptr;  // of one rank's task
};

// What one rank ended with.
struct ToyResult {
  RunSummary summary;
  std::vector<torch::Tensor> weights;  // parameters, then buffers
  std::vector<std::string> notes;      // of rank 0, as are the rest
  std::vector<double> losses;          // by step
  std::vector<uint64_t> steps;         // done, after each
  std::vector<EvaluationEvent> tests;
};

// `where`: the group, or what makes groups. With `tells` its events are kept.
template <typename Where>
ToyResult train_toy_in(Where& where, int number, const ToyOptions& toy, bool tells) {
  ToyResult result;
  const ToyData train(toy.samples), test(53, 1), held_out(toy.held_out, 2);
  const auto net = std::make_shared<ToyNet>(toy.dropout, toy.norm, toy.hidden);
  Task task = task_of_net(net);
  if (toy.change) toy.change(number, task);
  RunEvents events;
  uint64_t done = 0;
  if (tells) {
    events.note = [&](std::string_view text) { result.notes.emplace_back(text); };
    events.evaluation = [&](const EvaluationEvent& event) { result.tests.push_back(event); };
    events.step = [&](const StepEvent& event) {
      result.losses.push_back(event.loss);
      result.steps.push_back(event.step);
      done = event.step;
    };
    if (toy.stop_after != UINT64_MAX) events.stop = [&] { return done >= toy.stop_after; };
  }
  result.summary = train_task(
      toy_recipe(toy.settings), toy.places, where, task,
      {.train = train, .test = test, .hold_out = toy.held_out != 0 ? &held_out : nullptr}, events);
  for (const torch::Tensor& tensor : net->parameters())
    result.weights.push_back(tensor.detach().clone());
  for (const torch::Tensor& tensor : net->buffers()) result.weights.push_back(tensor.clone());
  return result;
}

inline ToyResult train_toy(Group& group, const ToyOptions& toy) {
  return train_toy_in(group, group.rank(), toy, group.rank() == 0);
}

// The same on threads; by rank.
inline std::vector<ToyResult> run_toy(int ranks, const ToyOptions& toy) {
  std::vector<ToyResult> results(static_cast<size_t>(ranks));
  run_local(ranks, [&](Group& group) {
    results[static_cast<size_t>(group.rank())] = train_toy(group, toy);
  });
  return results;
}

inline bool same_bits(const std::vector<torch::Tensor>& a, const std::vector<torch::Tensor>& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i)
    if (!a[i].equal(b[i])) return false;
  return true;
}

// Largest difference between two sets of weights.
inline double distance(const std::vector<torch::Tensor>& a, const std::vector<torch::Tensor>& b) {
  double most = 0;
  for (size_t i = 0; i < a.size(); ++i)
    most = std::max(most, (a[i] - b[i]).abs().max().item<double>());
  return most;
}

}  // namespace thinwire
