// One worker of a local method over a torch.distributed process group, for thinwire.torch.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <vector>

#include "renewed.h"
#include "saved_store.h"
#include "thinwire/group.h"
#include "thinwire/store.h"
#include "thinwire/synchroniser.h"

namespace thinwire::python {

// For one thread. `parameters` and `gradients` are contiguous float32 vectors on the processor: the
// values of all tensors, one after another.
class LocalWorker {
 public:
  // Called by all ranks of the process group alike; all begin with rank 0's parameters, which are
  // written to `parameters`. Throws whatever make_synchroniser throws.
  LocalWorker(const c10::intrusive_ptr<c10d::ProcessGroup>& processes,
              const std::vector<NamedShape>& tensors, const at::Tensor& parameters,
              SynchroniserOptions options, double deadline_seconds);

  bool needs_loss() const { return find_synchroniser(options_.method).value().entry->by_loss; }
  bool adjusts_gradient() const { return sync_->adjusts_gradient(); }
  void adjust_gradient(const at::Tensor& parameters, const at::Tensor& gradients);
  std::optional<RoundReport> after_step(const at::Tensor& parameters, double loss);
  void centre(const at::Tensor& parameters, const at::Tensor& out);
  void leave() { sync_->leave(); }

  std::vector<SavedArray> save() const { return save_store(*store_); }
  // The method goes on from these states of `saved.size()` old ranks. Called by all ranks. Where it
  // fails all of them go on as they were, unless one is lost.
  void load(const std::vector<std::vector<SavedArray>>& saved);
  // The method begins anew, all with rank 0's parameters, which are written to `parameters`. Called
  // by all ranks.
  void restart(const at::Tensor& parameters);

  // What every rank says, in rank order. Called by all ranks between two rounds.
  std::vector<std::string> tell_all(const std::string& text) {
    return python::tell_all(*group_, text);
  }

  // The names of a method and of the codecs that a text comes to, without their options, as
  // "streaming of int8".
  static std::string kind_of(const std::string& method, const std::string& codec);

  int rank() const { return group_->rank(); }
  int size() const { return group_->size(); }

 private:
  void begin_with(std::unique_ptr<Store> store, std::span<const float> start);
  std::vector<float> zeros() const;  // as many as there are parameters

  std::unique_ptr<Group> group_;
  std::unique_ptr<Store> store_;
  const std::vector<TensorSpec> tensors_;
  const SynchroniserOptions options_;
  Renewed<Synchroniser> sync_;
};

}  // namespace thinwire::python
