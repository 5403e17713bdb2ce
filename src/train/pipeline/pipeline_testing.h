// For tests: a small network of layers, and runs of it in stages on threads.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/torch.h>

#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "train/toy_task.h"

namespace thinwire {

// 8 - 16 - 16 - 16 - 3: layers "first", "second", "third", "output"; with dropout or batch norm in
// the second on request, and wider.
inline Task staged_task(double dropout = 0, bool normed = false, int64_t hidden_size = 16) {
  uint32_t stream = 100;
  const auto linear = [&](int64_t from, int64_t to) {
    torch::nn::Linear layer(from, to);
    const torch::NoGradGuard no_grad;
    const RandomKey key{.seed = 1, .use = RandomUse::kTest, .step = 0, .stream = stream++};
    for (int64_t i = 0; i < layer->weight.numel(); ++i)
      layer->weight.view(-1)[i] = 0.3f * random_normal(key, static_cast<uint64_t>(i));
    layer->bias.zero_();
    return layer;
  };
  const auto hidden = [](std::string name, torch::nn::Linear weights) {
    return Layer{
        .name = std::move(name),
        .module = weights.ptr(),
        .forward = [weights](const torch::Tensor& x) mutable { return torch::relu(weights(x)); }};
  };
  std::vector<Layer> layers = {hidden("first", linear(8, hidden_size)),
                               hidden("second", linear(hidden_size, hidden_size)),
                               hidden("third", linear(hidden_size, hidden_size))};
  torch::nn::Linear output = linear(hidden_size, 3);
  layers.push_back({.name = "output",
                    .module = output.ptr(),
                    .forward = [=](const auto& x) mutable { return output(x); }});
  if (normed) {
    torch::nn::Linear weights = linear(hidden_size, hidden_size);
    torch::nn::BatchNorm1d norm(hidden_size);
    torch::nn::Sequential both(weights, norm);
    layers[1].module = both.ptr();
    layers[1].forward = [both](const torch::Tensor& x) mutable {
      return torch::relu(both->forward(x));
    };
  }
  if (dropout > 0) {
    for (const size_t i : {size_t{0}, size_t{2}}) {
      const auto inner = layers[i].forward;
      const auto module = layers[i].module;
      layers[i].forward = [=](const torch::Tensor& x) {
        return counted_dropout(inner(x), dropout, module->is_training());
      };
    }
  }
  return make_sequence(std::move(layers));
}

struct StagedResult {
  RunSummary summary;
  std::vector<torch::Tensor> weights;  // parameters, then buffers
  std::vector<std::string> notes;      // of rank 0, as are the rest
  std::vector<StepEvent> steps;
  std::vector<PipelineReport> pipelines;  // of each step
  std::vector<EvaluationEvent> tests;
};

struct StagedOptions {
  Settings settings = {};  // of the recipe
  RunPlaces places = {};
  double dropout = 0;
  bool normed = false;
  int64_t hidden = 16;
  uint64_t samples = 90;
  uint64_t held_out = 0;
  uint64_t stop_after = UINT64_MAX;                            // steps
  std::function<void(int rank, Task& task)> change = nullptr;  // of one rank's task
};

// Options has the members of StagedOptions from `settings` to `change` that are not the network's.
template <typename Options>
StagedResult train_small(Group& group, const Options& options, Task task, const TaskData& data) {
  StagedResult result;
  if (options.change) options.change(group.rank(), task);
  RunEvents events;
  if (group.rank() == 0) {
    events.note = [&](std::string_view text) { result.notes.emplace_back(text); };
    events.evaluation = [&](const EvaluationEvent& event) { result.tests.push_back(event); };
    events.step = [&](const StepEvent& event) {
      result.steps.push_back(event);
      if (event.pipeline != nullptr) result.pipelines.push_back(*event.pipeline);
    };
    if (options.stop_after != UINT64_MAX)
      events.stop = [&] {
        return !result.steps.empty() && result.steps.back().step >= options.stop_after;
      };
  }
  result.summary =
      train_task(toy_recipe(options.settings), options.places, group, task, data, events);
  for (const torch::Tensor& tensor : task.module->parameters())
    result.weights.push_back(tensor.detach().clone());
  for (const torch::Tensor& tensor : task.module->buffers())
    result.weights.push_back(tensor.clone());
  return result;
}

inline StagedResult train_staged(Group& group, const StagedOptions& options) {
  const ToyData train(options.samples), test(53, 1), held_out(options.held_out, 2);
  return train_small(
      group, options, staged_task(options.dropout, options.normed, options.hidden),
      {.train = train, .test = test, .hold_out = options.held_out != 0 ? &held_out : nullptr});
}

// `train` on threads; rank 0's result. All ranks must have ended with the same weights.
inline StagedResult run_small(int ranks, const std::function<StagedResult(Group&)>& train) {
  std::vector<StagedResult> results(static_cast<size_t>(ranks));
  run_local(ranks,
            [&](Group& group) { results[static_cast<size_t>(group.rank())] = train(group); });
  for (const StagedResult& result : results)
    if (!same_bits(result.weights, results[0].weights))
      throw std::logic_error("ranks ended with different weights");
  return std::move(results[0]);
}

inline StagedResult run_staged(int ranks, const StagedOptions& options) {
  return run_small(ranks, [&](Group& group) { return train_staged(group, options); });
}

inline Settings with(Settings settings, const Settings& more) {
  settings.insert(settings.end(), more.begin(), more.end());
  return settings;
}

}  // namespace thinwire
