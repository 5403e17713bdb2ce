// Trains the caller's own libtorch module on the caller's own data. The only public header that
// includes libtorch.
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
#include "thinwire/members.h"
#include "thinwire/store.h"
#include "thinwire/trainer.h"

namespace thinwire {

struct Batch {
  torch::Tensor inputs;   // first dimension: samples
  torch::Tensor targets;  // first dimension: samples
};

// Random augmentation is a function of this, so that a sample looks the same whichever rank fetches
// it.
struct FetchContext {
  bool training = false;
  uint64_t seed = 0;
  uint64_t epoch = 0;
};

// Samples with stable ids 0 .. size-1. A data set is const and safe to call from any thread.
class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual uint64_t size() const = 0;
  virtual Batch fetch(std::span<const uint64_t> ids, const FetchContext& context) const = 0;
};

// A part of a network. Pipelines are cut between layers.
struct Layer {
  std::string name;
  std::shared_ptr<torch::nn::Module> module;  // its weights; null if it has none
  std::function<torch::Tensor(const torch::Tensor& inputs)> forward;
};

// A network and how it is evaluated. Each rank has its own, all with the same initial weights: rank
// 0's are broadcast.
struct Task {
  std::shared_ptr<torch::nn::Module> module;
  std::function<torch::Tensor(const torch::Tensor& inputs)> forward;
  // Returns the mean loss over the batch. If absent: cross entropy of outputs (samples first,
  // classes last).
  std::function<torch::Tensor(const torch::Tensor& outputs, const torch::Tensor& targets)> loss;
  // Returns the number of wrong predictions and of all predictions. If absent: arg-max over the
  // last dimension.
  std::function<std::pair<uint64_t, uint64_t>(const torch::Tensor& outputs,
                                              const torch::Tensor& targets)>
      errors;
  // `forward` in parts, first to last, each with the weights of its own module and no others.
  // Empty: the network cannot be cut. Between two parts there is one float32 tensor, whose first
  // dimension is the samples.
  std::vector<Layer> layers;
};

// Makes a network from its layers, one after the other. Their modules, under their names, are the
// module's children.
Task make_sequence(std::vector<Layer> layers);

// Name, shape and kind of every parameter that requires a gradient, in the module's order. The kind
// follows from the type of the module that owns the parameter.
std::vector<TensorSpec> describe_parameters(const torch::nn::Module& module);

// Averages the gradients of a module over a group, while the backward pass runs: a hook on each
// parameter starts its tensor as soon as its gradient has been accumulated. Only one thread may use
// an object.
class DataParallel {
 public:
  // Broadcasts rank 0's parameters and buffers. All arguments must outlive this object.
  DataParallel(torch::nn::Module& module, Group& group, Store& store,
               const ExchangeOptions& options);

  // The same in a group whose other ranks call regroup or this, and with weights as they are: `how`
  // says whether this rank is to take those of another (join_exchange). options.generation is the
  // number of the group.
  DataParallel(torch::nn::Module& module, Group& group, Store& store,
               const ExchangeOptions& options, Regrouped& how);
  ~DataParallel();
  DataParallel(const DataParallel&) = delete;
  DataParallel& operator=(const DataParallel&) = delete;

  // While on, backward passes add to the gradients and send nothing (micro-batches).
  void set_accumulating(bool accumulating) noexcept;

  // Has `see` called with each gradient of this rank, and its place among describe_parameters,
  // before the exchange has it. Between two steps.
  void before_exchange(std::function<void(size_t index, const torch::Tensor& gradient)> see);

  // Call it after the last backward pass of a step. Afterwards every .grad() holds the mean over
  // ranks. A parameter without a gradient counts as zero; with a single rank it stays without one
  // unless its memory gives values of earlier steps. If the report says skipped, the optimiser must
  // not step.
  StepReport finish();

  // Exchange::regroup. Gradients must be where the last step left them, even if it failed. If the
  // step counted, they hold its means then.
  Regrouped regroup(Group& group, uint32_t generation);

  Exchange& exchange() noexcept;

 private:
  struct State;
  DataParallel(torch::nn::Module& module, Group& group);
  void hook();

  std::shared_ptr<State> state_;
};

// The data on which a task is trained and evaluated. Every rank has the same.
struct TaskData {
  const Dataset& train;
  const Dataset& test;
  const Dataset* hold_out = nullptr;  // also evaluated, if there is one
};

// The trainer behind train_recipe, for a task and data of the caller's own. Recipe keys about model
// and data are ignored.
RunSummary train_task(const Recipe& recipe, const RunPlaces& places, Group& group, Task task,
                      const TaskData& data, const RunEvents& events);

// The same in a run whose workers come and go, with run.elastic: docs/elastic.md. Every rank has
// `events`, and those of the first worker that is left are called. Throws SurvivedError on a worker
// that failed while others are left, and on one without which they went on.
RunSummary train_task(const Recipe& recipe, const RunPlaces& places, Members& members, Task task,
                      const TaskData& data, const RunEvents& events);

// Dropout whose mask is a pure function of the run's seed, the step, each sample's place in the
// batch of all ranks and the order of calls in a forward pass. So it is the same in every run and
// for every number of ranks. Call it inside train_task's forward passes, on tensors whose first
// dimension is the samples; elsewhere it throws Error(kContract).
torch::Tensor counted_dropout(const torch::Tensor& input, double probability, bool training);

}  // namespace thinwire
