// Training one's own libtorch module on one's own data. The only public header that includes
// libtorch.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "thinwire/exchange.h"
#include "thinwire/group.h"
#include "thinwire/store.h"
#include "thinwire/trainer.h"

namespace thinwire {

struct Batch {
  torch::Tensor inputs;   // first dimension: samples
  torch::Tensor targets;  // first dimension: samples
};

// What random augmentation is keyed by, so that a sample looks the same whichever rank fetches it.
struct FetchContext {
  bool training = false;
  uint64_t seed = 0;
  uint64_t epoch = 0;
};

// Samples with stable ids 0 .. size-1. Const and safe to call from any thread.
class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual uint64_t size() const = 0;
  virtual Batch fetch(std::span<const uint64_t> ids, const FetchContext& context) const = 0;
};

// A part of a network that others may follow: what pipelines are cut between.
struct Layer {
  std::string name;
  std::shared_ptr<torch::nn::Module> module;  // its weights; null without any
  std::function<torch::Tensor(const torch::Tensor& inputs)> forward;
};

// A network and how it is judged. Each rank has its own, all with the same initial weights: rank
// 0's are broadcast.
struct Task {
  std::shared_ptr<torch::nn::Module> module;
  std::function<torch::Tensor(const torch::Tensor& inputs)> forward;
  // Mean loss over the batch. Cross entropy of outputs (samples first, classes last) when absent.
  std::function<torch::Tensor(const torch::Tensor& outputs, const torch::Tensor& targets)> loss;
  // Wrong predictions and predictions made. Arg-max over the last dimension when absent.
  std::function<std::pair<uint64_t, uint64_t>(const torch::Tensor& outputs,
                                              const torch::Tensor& targets)>
      errors;
  // `forward` in parts, first to last, each with the weights of its own module and no others. Empty: the
  // network cannot be cut. What passes between two is one float32 tensor, its first dimension samples.
  std::vector<Layer> layers;
};

// A network that is its layers, one after the other: their modules, under their names, are the module's
// children.
Task make_sequence(std::vector<Layer> layers);

// Name, shape and kind of every parameter that requires a gradient, in the module's order. The kind
// follows from the type of the module that owns the parameter.
std::vector<TensorSpec> describe_parameters(const torch::nn::Module& module);

// Averages the gradients of a module over a group, overlapping the backward pass: a hook on each
// parameter starts its tensor as soon as its gradient has been accumulated. One thread per object.
class DataParallel {
 public:
  // Broadcasts rank 0's parameters and buffers. All arguments must outlive this object.
  DataParallel(torch::nn::Module& module, Group& group, Store& store,
               const ExchangeOptions& options);
  ~DataParallel();
  DataParallel(const DataParallel&) = delete;
  DataParallel& operator=(const DataParallel&) = delete;

  // While on, backward passes add to the gradients and send nothing (micro-batches).
  void set_accumulating(bool accumulating) noexcept;

  // After the last backward pass of a step: afterwards every .grad() holds the mean over ranks; a
  // parameter that had none counts as zero, and of a single rank stays without. When the report says skipped, the optimiser must not
  // step.
  StepReport finish();

  Exchange& exchange() noexcept;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

// What a task is trained and judged on. Every rank has the same.
struct TaskData {
  const Dataset& train;
  const Dataset& test;
  const Dataset* hold_out = nullptr;  // judged besides, if there is one
};

// The trainer behind train_recipe on a task and data of one's own; recipe keys about model and data
// are not looked at.
RunSummary train_task(const Recipe& recipe, const RunPlaces& places, Group& group, Task task,
                      const TaskData& data, const RunEvents& events);

// Dropout whose mask is a pure function of the run's seed, the step, each sample's place in the
// batch of all ranks and the order of calls in a forward pass: the same on every run and for every
// number of ranks. Inside train_task's forward passes, on tensors whose first dimension is the
// samples; elsewhere it throws Error(kContract).
torch::Tensor counted_dropout(const torch::Tensor& input, double probability, bool training);

}  // namespace thinwire
