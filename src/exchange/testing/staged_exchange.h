// An exchange whose tensors lie on a fake device: the suites of exchanges run through it unchanged.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstring>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "device/testing/fake_device.h"
#include "thinwire/exchange.h"
#include "thinwire/group.h"
#include "thinwire/store.h"

namespace thinwire::testing {

// Whether Side (exchange_testing.h) puts its tensors on a fake device. Set by a program's main
// file.
inline bool& on_fake_devices() {
  static bool on = false;
  return on;
}

// Takes tensors of the processor's memory. The caller's queue writes each gradient into memory of
// the device, late; the exchange is given that memory; and the caller's queue reads the mean.
class StagedExchange final : public Exchange {
 public:
  StagedExchange(std::shared_ptr<FakeDevice> device, std::unique_ptr<Exchange> exchange,
                 const std::vector<TensorSpec>& tensors)
      : places_(tensors.size()), device_(std::move(device)), exchange_(std::move(exchange)) {
    caller_ = device_->make_queue();
  }

  Ticket start(size_t index, TensorView view) override {
    if (index >= places_.size() || view.device != Device::kCpu || view.data == nullptr)
      return exchange_->start(index, view);
    const size_t bytes = view.count * (view.dtype == DType::kFloat32 ? 4 : 2);
    auto memory = std::make_shared<std::vector<std::byte>>(bytes, std::byte{0xEE});
    const std::byte* const from = static_cast<const std::byte*>(view.data);
    auto given = std::make_shared<std::vector<std::byte>>(from, from + bytes);
    TensorView on_device = view;
    on_device.data = FakeDevice::hide(memory->data());
    on_device.device = Device::kCuda;
    on_device.queue = caller_;
    device_->compute(caller_, [memory, given] {
      if (!given->empty()) std::memcpy(memory->data(), given->data(), given->size());
    });
    const Ticket ticket = exchange_->start(index, on_device);
    places_[index] = {view, std::move(memory)};
    return ticket;
  }

  StepReport finish() override {
    return with_means([&] { return exchange_->finish(); });
  }
  StepReport wait(Ticket ticket) override {
    return with_means([&] { return exchange_->wait(ticket); });
  }

  const std::vector<StreamSpec>& streams() const noexcept override { return exchange_->streams(); }
  const std::vector<OwnedRange>& owned(int rank) const override { return exchange_->owned(rank); }
  void set_step(uint64_t step) override { exchange_->set_step(step); }
  void set_momentum(std::span<const Momentum> of) override { exchange_->set_momentum(of); }
  void change(const ExchangeOptions& options) override { exchange_->change(options); }
  const ExchangeOptions& options() const noexcept override { return exchange_->options(); }
  void set_weight(double weight) override { exchange_->set_weight(weight); }
  void abstain(Abstention what) override { exchange_->abstain(what); }
  void settle(bool counts) override { exchange_->settle(counts); }
  void hand_over(bool leaves) override { exchange_->hand_over(leaves); }
  Regrouped regroup(Group& group, uint32_t generation) override {
    return exchange_->regroup(group, generation);
  }
  void set_weighted(bool weighted) override { exchange_->set_weighted(weighted); }

 private:
  struct Place {
    TensorView view;
    std::shared_ptr<std::vector<std::byte>> memory;
  };

  // An error leaves zeros or the gradients.
  template <class End>
  StepReport with_means(const End& end) {
    struct Fetch {
      StagedExchange& of;
      ~Fetch() { of.fetch_means(); }
    } fetch{*this};
    return end();
  }

  // By the caller's queue, and waiting for that one alone.
  void fetch_means() {
    for (const Place& place : places_)
      if (place.memory != nullptr)
        device_->compute(caller_, [place] {
          if (!place.memory->empty())
            std::memcpy(place.view.data, place.memory->data(), place.memory->size());
        });
    device_->finish(caller_);
    for (Place& place : places_) place = {};
  }

  std::vector<Place> places_;  // of this step; the exchange may still copy from them until it ends
  std::shared_ptr<FakeDevice> device_;
  std::unique_ptr<Exchange> exchange_;
  DeviceQueue caller_ = nullptr;
};

inline std::unique_ptr<Exchange> make_staged_exchange(Group& group, Store& store,
                                                      const std::vector<TensorSpec>& tensors,
                                                      ExchangeOptions options) {
  auto device = std::make_shared<FakeDevice>(static_cast<uint32_t>(1 + group.rank()));
  options.device = device;
  return std::make_unique<StagedExchange>(device, make_exchange(group, store, tensors, options),
                                          tensors);
}

}  // namespace thinwire::testing
