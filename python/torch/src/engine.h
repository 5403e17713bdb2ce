// One exchange over a torch.distributed process group, for thinwire.torch.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/ATen.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <tuple>
#include <utility>
#include <vector>

#include "renewed.h"
#include "saved_store.h"
#include "thinwire/agreement.h"
#include "thinwire/auto_codec.h"
#include "thinwire/exchange.h"
#include "thinwire/group.h"
#include "thinwire/momentum.h"
#include "thinwire/store.h"

namespace thinwire::python {

// Momentum, dampening, Nesterov's form.
using MomentumTuple = std::tuple<double, double, bool>;

inline Momentum momentum_of(const MomentumTuple& given) {
  const auto [momentum, dampening, nesterov] = given;
  return {.momentum = momentum, .dampening = dampening, .nesterov = nesterov};
}

// Not for two threads at once, but for wait, which may run on another one than start.
class Engine {
 public:
  // Called by all ranks of the process group alike, which has those of all columns. Throws whatever
  // make_exchange throws. With a device in the options, gradients may be in its memory.
  Engine(const c10::intrusive_ptr<c10d::ProcessGroup>& processes,
         const std::vector<NamedShape>& tensors, const ExchangeOptions& options,
         double deadline_seconds);

  // With a generation, as join_exchange has it: a member of a group whose ranks change.
  Engine(const c10::intrusive_ptr<c10d::ProcessGroup>& processes,
         const std::vector<NamedShape>& tensors, const ExchangeOptions& options,
         double deadline_seconds, uint32_t generation);

  // As Exchange has them. The gradients of a step that failed are kept until then; `joined` is what
  // regroup returned last, or the join.
  void regroup(const c10::intrusive_ptr<c10d::ProcessGroup>& processes, uint32_t generation);
  const Regrouped& joined() const noexcept { return joined_; }
  void settle(bool counts) { exchange_->settle(counts); }
  void hand_over(bool leaves) { exchange_->hand_over(leaves); }

  // Throws Error(kMismatch) on every rank when `text` (lines) differs between ranks. Called by all
  // ranks between two steps.
  void agree(const std::string& what, const std::string& text) {
    require_agreement(*group_, what, text);
  }

  // What every rank says, in rank order. Called by all ranks between two steps.
  std::vector<std::string> tell_all(const std::string& text) {
    return python::tell_all(*group_, text);
  }

  // Of every tensor, from the next step on, where the memory is an optimiser's momentum. Between
  // two steps.
  void set_momentum(const std::vector<MomentumTuple>& of_tensors);

  // As Exchange has them. set_weighted and change are called by all ranks alike, between two steps;
  // of the options, change takes those that Exchange::change can change. abstain sits the next step
  // out.
  void set_weighted(bool weighted) { exchange_->set_weighted(weighted); }
  void set_weight(double weight) { exchange_->set_weight(weight); }
  void abstain() { exchange_->abstain(Abstention::kSitsOut); }
  void skip_step() { exchange_->abstain(Abstention::kSkipsStep); }
  void change(ExchangeOptions asked);
  const ExchangeOptions& options() const { return exchange_->options(); }

  // Hands a gradient over; until wait returns it is thinwire's. Contiguous, float32, bfloat16 or
  // float16; on the processor, or, with a queue of the device, ready behind what that holds.
  void start(size_t index, const at::Tensor& gradient, std::optional<uint64_t> queue);

  // Ends the step that was started: gradients hold the mean over ranks. A step that was skipped for
  // a fault leaves them as NaN, so that whoever looks at gradients (a gradient scaler) sees on
  // every rank what one rank had; one that ranks abstained from leaves zeros. Throws
  // Error(kContract) naming the tensors that were not started.
  StepReport wait();

  // As thinwire/auto_codec.h has them, for gradients in float32 of the processor's memory. False
  // where the exchange has no bypass. A skipped step leaves gradients as wait does.
  bool may_bypass();
  void start_outside(size_t index, const at::Tensor& gradient);
  StepReport finish_outside();
  void abandon_outside(const std::string& why) { exchange_->bypass()->abandon_outside(why); }

  // The norm of what its memories owe.
  double owed() const { return store_->owed_norm(); }

  std::vector<SavedArray> save() const { return save_store(*store_); }
  // The exchange begins anew with these states of `saved.size()` old ranks. Called by all ranks.
  // Where it fails all of them go on as they were, unless one is lost.
  void load(const std::vector<std::vector<SavedArray>>& saved, uint64_t step);

  // Names and shapes of what it would save.
  std::vector<std::pair<std::string, std::vector<uint64_t>>> saved_shapes() const;

  // What codec "auto" decided, the first decision first.
  const std::vector<AutoDecision>& decisions() const { return exchange_->decisions(); }

  const std::vector<StreamSpec>& streams() const { return exchange_->streams(); }
  // Of the ranks that average with each other: those of a column, where the options have columns.
  int rank() const { return group_->rank() / columns_; }
  int size() const { return group_->size() / columns_; }
  int column() const { return group_->rank() % columns_; }

 private:
  struct Started {
    size_t index;
    at::Tensor gradient;
    at::Tensor values;  // the same, or a copy in float32
  };

  void require_all() const;
  void end_step(const StepReport& report);
  void give_back(const StepReport& report);

  std::chrono::milliseconds deadline_;
  std::unique_ptr<Group> group_;
  std::unique_ptr<Store> store_;
  const std::vector<TensorSpec> tensors_;
  const int columns_;
  Renewed<Exchange> exchange_;
  Regrouped joined_;
  uint64_t next_step_ = 0;
  std::vector<Started> started_;  // of the step under way
  Ticket ticket_;
};

}  // namespace thinwire::python
