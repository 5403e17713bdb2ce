// Exchanges of a few tensors by method gather: on the processor, staged, or compressed in a fake
// device's memory.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "device/testing/coded_cases.h"
#include "device/testing/fake_device.h"
#include "exchange/testing/exchange_testing.h"
#include "exchange/testing/staged_exchange.h"

namespace thinwire::testing {

inline const std::vector<TensorSpec> kDeviceTensors = {
    {"a", {40, 50}, TensorKind::kConvolution}, {"b", {3001}}, {"empty", {0}}};

enum class WorkerPlace { kProcessor, kStaged, kDevice };

inline std::vector<uint32_t> float_bits(const Values& values) {
  std::vector<uint32_t> bits(values.size());
  if (!values.empty()) std::memcpy(bits.data(), values.data(), 4 * values.size());
  return bits;
}

// A fake device whose kernels take their time, while other queues go on. Those of the name `held`
// wait for a release.
class SlowDevice final : public DeviceMemory {
 public:
  explicit SlowDevice(std::shared_ptr<FakeDevice> of) : of_(std::move(of)) {}

  std::string held;
  std::atomic<bool> released = true;
  std::atomic<size_t> held_now = 0;  // that were launched and not released

  std::string name() const override { return of_->name(); }
  std::byte* allocate_host(size_t bytes) override { return of_->allocate_host(bytes); }
  void free_host(std::byte* memory) noexcept override { of_->free_host(memory); }
  DeviceQueue make_queue() override { return of_->make_queue(); }
  void free_queue(DeviceQueue queue) noexcept override { of_->free_queue(queue); }
  void copy_to_host(std::byte* to, const void* from, size_t bytes, DeviceQueue queue) override {
    of_->copy_to_host(to, from, bytes, queue);
  }
  void copy_from_host(void* to, const std::byte* from, size_t bytes, DeviceQueue queue) override {
    of_->copy_from_host(to, from, bytes, queue);
  }
  std::unique_ptr<DeviceEvent> make_event() override { return of_->make_event(); }
  void record(DeviceEvent& event, DeviceQueue queue) override { of_->record(event, queue); }
  void wait_for(DeviceQueue queue, const DeviceEvent& event) override {
    of_->wait_for(queue, event);
  }
  bool reached(const DeviceEvent& event) override { return of_->reached(event); }
  void* allocate(size_t bytes) override { return of_->allocate(bytes); }
  void free(void* memory) noexcept override { of_->free(memory); }

  std::unique_ptr<device::Launcher> make_launcher(DeviceQueue queue, std::string& why) override {
    return std::make_unique<Launcher>(*this, queue, of_->make_launcher(queue, why));
  }

 private:
  class Launcher final : public device::Launcher {
   public:
    Launcher(SlowDevice& on, DeviceQueue queue, std::unique_ptr<device::Launcher> of)
        : on_(on), queue_(queue), of_(std::move(of)) {}
    void launch(std::string_view kernel, device::Grid grid,
                std::span<const device::Argument> arguments) override {
      const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(3);
      const bool waits = kernel == on_.held && !on_.released;
      on_.of_->compute_until(queue_, [=, &on = on_] {
        return std::chrono::steady_clock::now() > until && (!waits || on.released);
      });
      of_->launch(kernel, grid, arguments);
      on_.held_now += waits;
    }

   private:
    SlowDevice& on_;
    DeviceQueue queue_;
    std::unique_ptr<device::Launcher> of_;
  };

  std::shared_ptr<FakeDevice> of_;
};

// An exchange over a store of the caller's, on a fake device of its own unless one is given.
class DeviceWorker {
 public:
  DeviceWorker(Group& group, Store& store, ExchangeOptions options, WorkerPlace where,
               bool slow = false, std::shared_ptr<FakeDevice> given = nullptr)
      : rank_(group.rank()) {
    if (where == WorkerPlace::kProcessor) {
      exchange_ = make_exchange(group, store, kDeviceTensors, options);
      return;
    }
    device = given != nullptr ? std::move(given)
                              : std::make_shared<FakeDevice>(static_cast<uint32_t>(3 + rank_),
                                                             where == WorkerPlace::kDevice);
    options.device = device;
    if (slow) options.device = std::make_shared<SlowDevice>(device);
    exchange_ = std::make_unique<StagedExchange>(
        device, make_exchange(group, store, kDeviceTensors, options), kDeviceTensors);
  }

  // The bits of all means. `spoil` changes the gradients.
  template <class Spoil>
  std::vector<std::vector<uint32_t>> step(uint64_t number, const Spoil& spoil) {
    std::vector<Values> tensors;
    for (const TensorSpec& spec : kDeviceTensors)
      tensors.push_back(device::make_values(device::Values::kHeavyTail, spec.count(),
                                            100 * number + static_cast<uint64_t>(rank_)));
    spoil(tensors);
    for (size_t i = kDeviceTensors.size(); i-- > 0;)
      if (i != left_out)
        exchange_->start(i, {.data = tensors[i].data(), .count = tensors[i].size()});
    report = exchange_->finish();
    std::vector<std::vector<uint32_t>> bits;
    for (const Values& values : tensors) bits.push_back(float_bits(values));
    return bits;
  }
  std::vector<std::vector<uint32_t>> step(uint64_t number) {
    return step(number, [](auto&) {});
  }

  Exchange& exchange() noexcept { return *exchange_; }

  std::shared_ptr<FakeDevice> device;
  StepReport report;
  size_t left_out = SIZE_MAX;  // a tensor that is not started

 private:
  int rank_;
  std::unique_ptr<Exchange> exchange_;
};

inline ExchangeOptions gather_options(const std::string& codec, const std::string& feedback) {
  return {.codec = codec, .feedback = feedback, .method = "gather"};
}

}  // namespace thinwire::testing
