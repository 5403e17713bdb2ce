// RunDevice: the processor or a GPU, for the network and the batches of a run. No other file asks
// libtorch for a device.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/torch.h>

#include <memory>
#include <string>

#include "thinwire/exchange.h"
#include "thinwire/group.h"
#include "thinwire/torch.h"

namespace thinwire {

// Fails, and says which names there are, unless it is "cpu", "cuda", or "cuda:" and a number.
Status check_run_device(const std::string& name);

// How many ranks of a group are threads of this process, and how many of these come before this
// rank.
struct ProcessRanks {
  int count = 1;
  int before = 0;
};

// All ranks call it.
ProcessRanks ranks_of_process(Group& group);

// The number by which a rank chooses among its machine's GPUs. That which a launcher of processes
// gave this process is not that of each of its threads: those count themselves. Without a launcher
// it is the rank. Throws Error(kBadOption) if the launcher's is no number.
int place_on_machine(int rank, const ProcessRanks& ranks);

class RunDevice {
 public:
  RunDevice() = default;  // the processor

  // Of "cuda", the ranks of a machine take its GPUs in turn, as threads or as processes. Throws
  // Error(kUnsupported), which says what is missing: CUDA in libtorch, the driver, or the GPU; and
  // as place_on_machine. REQUIRES: check_run_device accepts the name.
  RunDevice(const std::string& name, int rank, const ProcessRanks& ranks);

  bool is_processor() const noexcept { return memory_ == nullptr; }
  const torch::Device& torch_device() const noexcept { return device_; }

  // For ExchangeOptions::device; null for the processor.
  const std::shared_ptr<DeviceMemory>& memory() const noexcept { return memory_; }

 private:
  torch::Device device_ = torch::kCPU;
  std::shared_ptr<DeviceMemory> memory_;
};

// The tensor itself if it is there and contiguous, else a contiguous copy there. Everything that a
// run moves goes through this: weights, batches, states of optimisers, checkpoints.
torch::Tensor moved(const torch::Tensor& tensor, const torch::Device& to);

// Parameters and buffers stay the same tensors, with memory there.
void move_module(torch::nn::Module& module, const RunDevice& to);

// A data set whose batches are there. `data` outlives it; null is null.
std::unique_ptr<const Dataset> moved_data(const Dataset* data, const RunDevice& to);

// Memory of a contiguous tensor, for an exchange; on a device it is ready behind what torch's
// current stream holds now.
TensorView view_of(const torch::Tensor& tensor, DType dtype);

}  // namespace thinwire
