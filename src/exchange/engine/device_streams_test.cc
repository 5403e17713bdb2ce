// Streams that are compressed in a device's memory: the processor's results, fewer copies, and state that moves.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "device/testing/coded_cases.h"
#include "device/testing/fake_device.h"
#include "exchange/testing/error_of.h"
#include "exchange/testing/exchange_testing.h"
#include "exchange/testing/staged_exchange.h"

namespace thinwire::testing {
namespace {

using ::testing::HasSubstr;

const std::vector<TensorSpec> kTensors = {
    {"a", {40, 50}, TensorKind::kConvolution}, {"b", {3001}}, {"empty", {0}}};

enum class Where { kProcessor, kStaged, kDevice };

std::vector<uint32_t> bits_of(const Values& values) {
  std::vector<uint32_t> bits(values.size());
  if (!values.empty()) std::memcpy(bits.data(), values.data(), 4 * values.size());
  return bits;
}

// A fake device whose kernels take their time, while other queues go on.
class SlowDevice final : public DeviceMemory {
 public:
  explicit SlowDevice(std::shared_ptr<FakeDevice> of) : of_(std::move(of)) {}

  std::string name() const override { return of_->name(); }
  std::byte* allocate_host(size_t bytes) override { return of_->allocate_host(bytes); }
  void free_host(std::byte* memory) noexcept override { of_->free_host(memory); }
  DeviceQueue make_queue() override { return of_->make_queue(); }
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
    return std::make_unique<Launcher>(*of_, queue, of_->make_launcher(queue, why));
  }

 private:
  class Launcher final : public device::Launcher {
   public:
    Launcher(FakeDevice& on, DeviceQueue queue, std::unique_ptr<device::Launcher> of)
        : on_(on), queue_(queue), of_(std::move(of)) {}
    void launch(std::string_view kernel, device::Grid grid,
                std::span<const device::Argument> arguments) override {
      const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(3);
      on_.compute_until(queue_, [=] { return std::chrono::steady_clock::now() > until; });
      of_->launch(kernel, grid, arguments);
    }

   private:
    FakeDevice& on_;
    DeviceQueue queue_;
    std::unique_ptr<device::Launcher> of_;
  };

  std::shared_ptr<FakeDevice> of_;
};

// An exchange over a store of the caller's.
class Worker {
 public:
  Worker(Group& group, Store& store, ExchangeOptions options, Where where, bool slow = false)
      : rank_(group.rank()) {
    if (where == Where::kProcessor) {
      exchange_ = make_exchange(group, store, kTensors, options);
      return;
    }
    device =
        std::make_shared<FakeDevice>(static_cast<uint32_t>(3 + rank_), where == Where::kDevice);
    options.device = device;
    if (slow) options.device = std::make_shared<SlowDevice>(device);
    exchange_ = std::make_unique<StagedExchange>(
        device, make_exchange(group, store, kTensors, options), kTensors);
  }

  // The bits of all means. `spoil` changes the gradients.
  template <class Spoil>
  std::vector<std::vector<uint32_t>> step(uint64_t number, const Spoil& spoil) {
    std::vector<Values> tensors;
    for (const TensorSpec& spec : kTensors)
      tensors.push_back(device::make_values(device::Values::kHeavyTail, spec.count(),
                                            100 * number + static_cast<uint64_t>(rank_)));
    spoil(tensors);
    for (size_t i = kTensors.size(); i-- > 0;)
      if (i != left_out)
        exchange_->start(i, {.data = tensors[i].data(), .count = tensors[i].size()});
    report = exchange_->finish();
    std::vector<std::vector<uint32_t>> bits;
    for (const Values& values : tensors) bits.push_back(bits_of(values));
    return bits;
  }
  std::vector<std::vector<uint32_t>> step(uint64_t number) {
    return step(number, [](auto&) {});
  }

  std::shared_ptr<FakeDevice> device;
  StepReport report;
  size_t left_out = SIZE_MAX;  // a tensor that is not started

 private:
  int rank_;
  std::unique_ptr<Exchange> exchange_;
};

ExchangeOptions options_of(const std::string& codec, const std::string& feedback) {
  return {.codec = codec, .feedback = feedback, .method = "gather"};
}

class DeviceStreams : public ::testing::TestWithParam<std::pair<const char*, const char*>> {};

TEST_P(DeviceStreams, GiveTheProcessorsMeansAndNorms) {
  const auto [codec, feedback] = GetParam();
  run_local(2, [&, codec = codec, feedback = feedback](Group& group) {
    Store here, there;
    Worker on_processor(group, here, options_of(codec, feedback), Where::kProcessor);
    Worker on_device(group, there, options_of(codec, feedback), Where::kDevice);
    for (uint64_t step = 0; step < 4; ++step) {
      on_device.left_out = on_processor.left_out = step == 2 ? 1 : SIZE_MAX;
      const auto spoil = [&](std::vector<Values>& tensors) {
        if (step == 1 && group.rank() == 1) tensors[0][7] = NAN;
      };
      const auto expected = on_processor.step(step, spoil);
      ASSERT_EQ(on_device.step(step, spoil), expected) << step;
      ASSERT_EQ(on_device.report.skipped, step == 1);
      for (size_t i = 0; i < on_processor.report.streams.size(); ++i) {
        const StreamCounters& a = on_processor.report.streams[i];
        const StreamCounters& b = on_device.report.streams[i];
        EXPECT_FALSE(a.on_device);
        EXPECT_TRUE(b.on_device);
        EXPECT_EQ(a.kept, b.kept);
        EXPECT_EQ(a.payload_bytes, b.payload_bytes);
        EXPECT_EQ(a.rest_norm, b.rest_norm);
        if (step != 1) {  // a NaN then
          EXPECT_EQ(a.gradient_norm, b.gradient_norm);
        }
      }
    }
    EXPECT_GT(on_device.device->launches, 0u);
  });
}

INSTANTIATE_TEST_SUITE_P(Codecs, DeviceStreams,
                         ::testing::Values(std::pair("int8", "residual"),
                                           std::pair("uniform:rounding=random", "none"),
                                           std::pair("topk:density=0.05", "residual:beta=0.9"),
                                           std::pair("sidco:density=0.05", "residual"),
                                           std::pair("dgc:density=0.1,values=bf16", "residual"),
                                           std::pair("adacomp", "residual"),
                                           std::pair("bf16", "none")));

TEST(DeviceStreams, CopyPayloadsAlone) {
  run_local(2, [&](Group& group) {
    Store store, other;
    const ExchangeOptions options = options_of("topk:density=0.01", "residual");
    Worker on_device(group, store, options, Where::kDevice);
    Worker staged(group, other, options, Where::kStaged);
    for (uint64_t step = 0; step < 3; ++step) EXPECT_EQ(on_device.step(step), staged.step(step));
    EXPECT_FALSE(staged.report.streams[0].on_device);
    const size_t values = 2000 + 3001;
    EXPECT_EQ(staged.device->bytes_to_host, 3 * 4 * values);
    EXPECT_EQ(staged.device->bytes_from_host, 3 * 4 * values);
    // 50 values a step, and the counts by which they are found.
    EXPECT_LT(on_device.device->bytes_to_host, 3 * 4 * values / 10);
    EXPECT_LT(on_device.device->bytes_from_host, 3 * 4 * values / 10);
  });
}

// Memories and encoders go from the processor to the device and back, through one store, and through saved state.
TEST(DeviceStreams, StateMovesBetweenProcessorAndDevice) {
  run_local(2, [&](Group& group) {
    const ExchangeOptions options = options_of("sidco:density=0.05", "residual");
    Store always, store;
    Worker reference(group, always, options, Where::kProcessor);
    std::vector<std::vector<std::vector<uint32_t>>> expected;
    for (uint64_t step = 0; step < 9; ++step) expected.push_back(reference.step(step));
    uint64_t step = 0;
    const auto run = [&](Store& in, Where where) {
      ExchangeOptions from = options;
      from.first_step = step;
      Worker worker(group, in, from, where);
      for (int i = 0; i < 2; ++i, ++step) ASSERT_EQ(worker.step(step), expected[step]) << step;
    };
    run(store, Where::kProcessor);
    run(store, Where::kDevice);
    run(store, Where::kProcessor);
    run(store, Where::kDevice);
    std::vector<StateArrays> saved(2);
    saved[static_cast<size_t>(group.rank())] = store.save();
    Store loaded;
    if (group.rank() == 0) saved[1] = saved[0];
    if (group.rank() == 1) saved[0] = saved[1];
    loaded.load(saved, group.rank(), 2).or_throw();
    ExchangeOptions from = options;
    from.first_step = step;
    Worker worker(group, loaded, from, Where::kStaged);
    EXPECT_EQ(worker.step(step), expected[step]);
  });
}

// What a codec, memory, method or schedule keeps from the device is staged, and the report says so.
TEST(DeviceStreams, OthersAreStaged) {
  run_local(2, [&](Group& group) {
    const auto stays = [&](ExchangeOptions options) {
      Store store, other;
      Worker there(group, store, options, Where::kDevice);
      Worker here(group, other, options, Where::kProcessor);
      EXPECT_EQ(there.step(0), here.step(0));
      return there.report.streams[0].on_device;
    };
    EXPECT_TRUE(stays(options_of("int8", "residual")));
    EXPECT_FALSE(stays(options_of("natural", "none")));
    EXPECT_FALSE(stays(options_of("topk:values=int8", "residual")));
    EXPECT_FALSE(stays(options_of("int8", "lowpass")));
    EXPECT_FALSE(stays(options_of("int8", "residual:gamma=0.5")));
    EXPECT_FALSE(stays({.codec = "int8", .feedback = "residual", .method = "scatter-reduce"}));
    EXPECT_FALSE(stays(options_of("fp16 | 1: int8", "residual")));
    ExchangeOptions seen = options_of("int8", "residual");
    seen.observe = [](const StreamSpec&, const Signal&, const Call&) {};
    EXPECT_FALSE(stays(seen));
  });
}

TEST(DeviceStreams, TensorsOfTheProcessorAndBfloatsTakePart) {
  run_local(2, [&](Group& group) {
    const ExchangeOptions options = options_of("int8", "residual");
    Store here, there;
    auto host = make_exchange(group, here, kTensors, options);
    ExchangeOptions on = options;
    const auto device = std::make_shared<FakeDevice>(5);
    on.device = device;
    auto exchange = make_exchange(group, there, kTensors, on);
    const DeviceQueue queue = device->make_queue();
    for (int step = 0; step < 3; ++step) {
      Values a(2000, 0.5f + static_cast<float>(group.rank())), a_there = a;
      std::vector<uint16_t> b(3001, 0x3F80), b_there = b;
      a[3] = a_there[3] = -0.0f;
      b[5] = b_there[5] = 0x8000;  // -0
      host->start(0, {.data = a.data(), .count = a.size()});
      host->start(1, {.data = b.data(), .count = b.size(), .dtype = DType::kBFloat16});
      host->finish();
      exchange->start(0, {.data = a_there.data(), .count = a.size()});
      exchange->start(1, {.data = FakeDevice::hide(b_there.data()),
                          .count = b.size(),
                          .dtype = DType::kBFloat16,
                          .device = Device::kCuda,
                          .queue = queue});
      const StepReport report = exchange->finish();
      device->finish(queue);
      EXPECT_TRUE(report.streams[0].on_device);
      EXPECT_EQ(bits_of(a_there), bits_of(a));
      EXPECT_EQ(b_there, b);
    }
  });
}

// The last kernels of a step, which nobody waits for, are those that write zeros where it is skipped.
TEST(DeviceStreams, CallersQueuesGoOnOnceTheMeansAreThere) {
  run_local(1, [](Group& group) {
    Store store;
    ExchangeOptions options = options_of("int8", "residual");
    options.max_skipped = 0;
    Worker worker(group, store, options, Where::kDevice, true);
    const auto zeros = worker.step(0, [](std::vector<Values>& tensors) { tensors[0][7] = NAN; });
    EXPECT_TRUE(worker.report.skipped);
    EXPECT_EQ(zeros[0], std::vector<uint32_t>(2000));
    EXPECT_EQ(zeros[1], std::vector<uint32_t>(3001));
  });
}

TEST(DeviceStreams, ADeviceThatFailsInAStepEndsTheExchange) {
  run_local(1, [](Group& group) {
    Store store;
    Worker worker(group, store, options_of("int8", "residual"), Where::kDevice);
    worker.step(0);
    worker.device->fail_now();
    EXPECT_THAT(error_of([&] { worker.step(1); }), HasSubstr("fake:0"));
  });
}

}  // namespace
}  // namespace thinwire::testing
