// Finds out what libtorch and the driver offer, and moves tensors.
// SPDX-License-Identifier: Apache-2.0
#include "train/run_device.h"

#include <ATen/Context.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/cuda.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

namespace thinwire {
namespace {

constexpr std::string_view kGpu = "cuda";

// The number behind "cuda:"; -1 where there is none.
int number_in(const std::string& name) {
  return name.size() > kGpu.size() ? std::stoi(name.substr(kGpu.size() + 1)) : -1;
}

// Of this process and no other, on any machine.
uint64_t process_mark() {
  static const uint64_t mark = [] {
    std::random_device random;
    const uint64_t high = random(), low = random();
    return high << 32 | low;
  }();
  return mark;
}

// Digits alone.
int local_rank(const char* variable, std::string_view value) {
  int place = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), place);
  if (error != std::errc() || end != value.data() + value.size() || place < 0)
    throw Error(ErrorCode::kBadOption, std::string(variable) + " is '" + std::string(value) +
                                           "', and should be this process's number on its "
                                           "machine, counted from 0");
  return place;
}

std::string error_of_driver() {
  try {
    make_cuda_memory(0);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

// Empty if libtorch can use a GPU.
std::string lack_of_gpu() {
  if (c10::impl::hasDeviceGuardImpl(torch::kCUDA) && torch::cuda::device_count() > 0) return "";
  const std::string driver = error_of_driver();
  if (!c10::impl::hasDeviceGuardImpl(torch::kCUDA))
    return "this libtorch was built without CUDA; build thinwire with one that has it "
           "(docs/gpu.md)" +
           (driver.empty() ? "" : ". Also, " + driver);
  return driver.empty() ? "libtorch finds no GPU that it can use" : driver;
}

class MovedData final : public Dataset {
 public:
  MovedData(const Dataset& data, const torch::Device& to) : data_(data), to_(to) {}
  uint64_t size() const override { return data_.size(); }
  Batch fetch(std::span<const uint64_t> ids, const FetchContext& context) const override {
    const Batch batch = data_.fetch(ids, context);
    return {.inputs = moved(batch.inputs, to_), .targets = moved(batch.targets, to_)};
  }

 private:
  const Dataset& data_;
  const torch::Device to_;
};

}  // namespace

Status check_run_device(const std::string& name) {
  const std::string_view tail = std::string_view(name).substr(std::min(name.size(), kGpu.size()));
  const bool gpu = name.starts_with(kGpu);
  const bool numbered =
      tail.size() >= 2 && tail.size() <= 4 && tail[0] == ':' &&
      std::all_of(tail.begin() + 1, tail.end(), [](char c) { return c >= '0' && c <= '9'; });
  if (name == "cpu" || (gpu && (tail.empty() || numbered))) return Status::ok();
  return Status::fail(ErrorCode::kBadOption,
                      "'" + name + "' is no device; there are cpu, cuda, cuda:0, cuda:1, ...");
}

ProcessRanks ranks_of_process(Group& group) {
  const uint64_t own = process_mark();
  std::vector<uint64_t> marks(static_cast<size_t>(group.size()));
  group.all_gather(std::as_bytes(std::span(&own, 1)), std::as_writable_bytes(std::span(marks)));
  const auto before = std::count(marks.begin(), marks.begin() + group.rank(), own);
  return {.count = static_cast<int>(std::count(marks.begin(), marks.end(), own)),
          .before = static_cast<int>(before)};
}

int place_on_machine(int rank, const ProcessRanks& ranks) {
  if (ranks.count > 1) return ranks.before;
  for (const char* name :
       {"OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID", "LOCAL_RANK"})
    if (const char* const value = std::getenv(name); value != nullptr && *value != '\0')
      return local_rank(name, value);
  return rank;
}

RunDevice::RunDevice(const std::string& name, int rank, const ProcessRanks& ranks) {
  if (name == "cpu") return;
  const auto refuse = [&](const std::string& why) {
    throw Error(ErrorCode::kUnsupported, "run.device = " + name + ": " + why);
  };
  if (const std::string lack = lack_of_gpu(); !lack.empty()) refuse(lack);
  const int there = torch::cuda::device_count();
  const int asked = number_in(name);
  const int number = asked >= 0 ? asked : place_on_machine(rank, ranks) % there;
  if (number >= there) refuse("there are " + std::to_string(there) + " GPUs");
  device_ = torch::Device(torch::kCUDA, static_cast<torch::DeviceIndex>(number));
  memory_ = make_cuda_memory(number);
  at::globalContext().setDeterministicCuDNN(true);  // runs repeat
}

torch::Tensor moved(const torch::Tensor& tensor, const torch::Device& to) {
  return tensor.to(to).contiguous();
}

void move_module(torch::nn::Module& module, const RunDevice& to) {
  if (!to.is_processor()) module.to(to.torch_device());
}

std::unique_ptr<const Dataset> moved_data(const Dataset* data, const RunDevice& to) {
  if (data == nullptr) return nullptr;
  return std::make_unique<MovedData>(*data, to.torch_device());
}

TensorView view_of(const torch::Tensor& tensor, DType dtype) {
  TensorView view{.data = tensor.mutable_data_ptr(),
                  .count = static_cast<size_t>(tensor.numel()),
                  .dtype = dtype};
  if (tensor.device().is_cpu()) return view;
  view.device = Device::kCuda;
  const c10::impl::VirtualGuardImpl torch_streams(tensor.device().type());
  view.queue = torch_streams.getStream(tensor.device()).native_handle();
  return view;
}

}  // namespace thinwire
