// Staging: tensors of a device's memory, in page-locked memory of the processor for the length of a
// step.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "thinwire/device_memory.h"
#include "thinwire/exchange.h"

namespace thinwire {

// Copies use two queues of their own, one each way, so that they run beside each other and beside
// what the caller computes. The host memory of a tensor is allocated once, with that of all, when
// the first is fetched.
//
//   caller's queue     ... gradient | ready                      returned -> what the caller does
//   fetch queue                       ready -> copy | arrived
//   exchange's thread                                 arrived -> compress, exchange, mean
//   return queue                                                                copy | returned
//
// A tensor that stays is not copied: the exchange's thread begins its work when `ready` is reached.
//
// fetch, leave_on_device, close_step and the functions that order callers are called under the lock
// of Intake, or between steps; the other functions by the exchange's thread.
class Staging {
 public:
  Staging(std::shared_ptr<DeviceMemory> device, const std::vector<TensorSpec>& tensors);
  ~Staging();  // waits for its own copies; a device that is stuck keeps its memory
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  // Queues the copy of a tensor of the device, behind what its queue holds now; or notes where that
  // is, of one that stays.
  void fetch(size_t tensor, const TensorView& view);

  // Whether a tensor can be worked on; true of tensors that were not fetched.
  bool arrived(size_t tensor) const;

  // Between two steps: which fp32 tensors stay in the device's memory, because they are compressed
  // there, and the queue in which their means are made.
  void leave_on_device(std::vector<bool> tensors, DeviceQueue queue);

  // Where the exchange finds a tensor: in host memory, or, of one that stays, where it is. No data
  // for others.
  TensorView found_view(size_t tensor) const;

  // The step is over: queues the copies of all means to where the gradients were. Adds to the
  // report what was copied both ways.
  void give_back(StepReport& report);

  // The exchange ends: what its queues hold comes before what the callers of this step put into
  // theirs from now on.
  void order_after_failure() noexcept;

  // The step was given up: tensors keep what they hold.
  void forget();

  // close_step notes on which queues this step's callers wait; order_callers makes those queues
  // wait for the last give_back.
  void close_step();
  void order_callers();

  // The same, where the step was the last: whoever comes for it is thrown an error, and waits for
  // nothing.
  void order_last_callers() noexcept;

 private:
  void open();
  bool wait_for_copies() noexcept;

  struct Place {
    size_t offset = 0;  // in host_
    TensorView view;    // this step's; no data where it was not fetched
    bool fetched = false;
    bool stays = false;  // in this step
    std::unique_ptr<DeviceEvent> ready, arrived;
  };

  std::shared_ptr<DeviceMemory> device_;
  std::vector<Place> places_;
  size_t bytes_ = 0;
  std::byte* host_ = nullptr;
  DeviceQueue fetches_ = nullptr, returns_ = nullptr;
  std::unique_ptr<DeviceEvent> returned_;
  std::vector<bool> may_stay_;  // tensors that may stay
  DeviceQueue works_ = nullptr;
  std::unique_ptr<DeviceEvent> worked_;  // the means of those that stayed are there
  std::vector<DeviceQueue> callers_;     // of this step
  std::vector<DeviceQueue> waiting_;     // of the last one that was closed
};

}  // namespace thinwire
