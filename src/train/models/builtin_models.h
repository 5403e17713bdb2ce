// One maker per network; models.cc lists them. Each returns a Task whose weights are still to be
// drawn.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "train/models/models.h"

namespace thinwire {

Task make_mlp(const ModelOptions& options, const SampleShape& shape);
Task make_cnn_mnist(const ModelOptions& options, const SampleShape& shape);
Task make_cnn_cifar(const ModelOptions& options, const SampleShape& shape);
Task make_cnn7(const ModelOptions& options, const SampleShape& shape);
Task make_resnet8(const ModelOptions& options, const SampleShape& shape);
Task make_resnet20(const ModelOptions& options, const SampleShape& shape);
Task make_resnet18(const ModelOptions& options, const SampleShape& shape);
Task make_char_lstm(const ModelOptions& options, const SampleShape& shape);
Task make_gpt_mini(const ModelOptions& options, const SampleShape& shape);
SharedLayers shared_layers_of_gpt_mini(const ModelOptions& options);
Task make_dnn_speech(const ModelOptions& options, const SampleShape& shape);

// A Task around a module with a forward(inputs) of its own; loss and errors are the defaults.
template <typename Module>
Task task_of(std::shared_ptr<Module> module) {
  Task task;
  task.forward = [module](const torch::Tensor& inputs) { return module->forward(inputs); };
  task.module = std::move(module);
  return task;
}

// A layer around a module with a forward(inputs) of its own.
template <typename Module>
Layer layer_of(std::string name, std::shared_ptr<Module> module) {
  return {.name = std::move(name), .module = module, .forward = [module](const torch::Tensor& x) {
            return module->forward(x);
          }};
}

inline int64_t or_default(int64_t given, int64_t fallback) { return given != 0 ? given : fallback; }

// The inputs, with dropout in training. Probability 0 asks for no random numbers, so that a network
// without dropout also runs outside the trainer.
inline torch::Tensor drop(const torch::Tensor& inputs, double probability, bool training) {
  return training && probability > 0 ? counted_dropout(inputs, probability, training) : inputs;
}

// Images with their channels innermost in memory; the shape says as before. Convolutions on a CPU
// then need not reorder: a step takes 0.77 (resnet20) and 0.72 (cnn-cifar) of the time, batch 64.
inline torch::Tensor channels_last(const torch::Tensor& images) {
  return images.contiguous(torch::MemoryFormat::ChannelsLast);
}

}  // namespace thinwire
