// Tensors on a device: beside others, in either format, and what becomes of a device that fails.
// SPDX-License-Identifier: Apache-2.0
#include "exchange/engine/staging.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cmath>

#include "device/testing/fake_device.h"
#include "exchange/testing/error_of.h"
#include "exchange/testing/exchange_testing.h"

namespace thinwire::testing {
namespace {

using ::testing::HasSubstr;

// An exchange with a device, and the view of a vector as the device's memory.
struct Staged {
  explicit Staged(Group& group, ExchangeOptions options = {})
      : device(std::make_shared<FakeDevice>(static_cast<uint32_t>(group.rank() + 1))) {
    options.device = device;
    exchange = make_exchange(group, store, {{"a", {1000}}, {"b", {300}}}, options);
    queue = device->make_queue();
  }

  TensorView view(void* data, size_t count, DType dtype = DType::kFloat32) const {
    return {.data = FakeDevice::hide(data),
            .count = count,
            .dtype = dtype,
            .device = Device::kCuda,
            .queue = queue};
  }

  Values a = Values(1000, 2.0f), b = Values(300, 4.0f);
  std::shared_ptr<FakeDevice> device;
  Store store;
  std::unique_ptr<Exchange> exchange;
  DeviceQueue queue = nullptr;
};

TEST(Staging, TensorsOfBothMemoriesInOneStep) {
  run_local(2, [](Group& group) {
    Staged on(group);
    on.a.assign(1000, group.rank() == 0 ? 1.0f : 3.0f);
    for (uint64_t step = 0; step < 5; ++step) {
      Values b(300, group.rank() == 0 ? 2.0f : 6.0f);
      on.exchange->start(1, {.data = b.data(), .count = b.size()});
      on.exchange->start(0, on.view(on.a.data(), on.a.size()));
      on.exchange->finish();
      on.device->finish(on.queue);
      EXPECT_EQ(b, Values(300, 4.0f));
      EXPECT_EQ(on.a, Values(1000, 2.0f));
    }
    EXPECT_EQ(on.device->allocations, 1);  // for all steps
  });
}

// The host memory behind it has the values of an earlier step.
TEST(Staging, ATensorWhoseCopyIsRefusedWasNotGivenAndStaysAsItIs) {
  run_local(1, [](Group& group) {
    Staged on(group);
    on.exchange->start(1, on.view(on.b.data(), on.b.size()));
    on.exchange->start(0, on.view(on.a.data(), on.a.size()));
    on.exchange->finish();
    on.device->finish(on.queue);
    on.a.assign(1000, 7.0f);
    on.device->refuses_copies = true;
    EXPECT_THROW(on.exchange->start(0, on.view(on.a.data(), on.a.size())), Error);
    on.device->refuses_copies = false;
    on.exchange->start(1, on.view(on.b.data(), on.b.size()));
    on.exchange->finish();
    on.device->finish(on.queue);
    EXPECT_EQ(on.a, Values(1000, 7.0f));
  });
}

TEST(Staging, BfloatsTravelAsTheyAre) {
  run_local(2, [](Group& group) {
    Staged on(group);
    std::vector<uint16_t> a(1000, group.rank() == 0 ? 0x3F80 : 0x4040);  // 1 and 3
    on.exchange->start(1, on.view(on.b.data(), on.b.size()));
    on.exchange->start(0, on.view(a.data(), a.size(), DType::kBFloat16));
    on.exchange->finish();
    on.device->finish(on.queue);
    EXPECT_EQ(a, std::vector<uint16_t>(1000, 0x4000));  // 2
  });
}

// A bucket is exchanged while the gradient of the next is still to be computed.
TEST(Staging, ABucketTravelsWhileTheDeviceComputesTheNext) {
  run_local(2, [](Group& group) {
    std::atomic<int> seen = 0;
    ExchangeOptions options{.codec = "int8", .bucket_bytes = 100};
    options.observe = [&](const StreamSpec& stream, const Signal&, const Call&) {
      if (stream.name == "b") ++seen;
    };
    Staged on(group, options);
    on.exchange->start(1, on.view(on.b.data(), on.b.size()));
    // The gradient of `a` is there once `b` was encoded.
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    std::atomic<bool> in_time = true;
    on.device->compute_until(on.queue, [&] {
      if (std::chrono::steady_clock::now() > until) in_time = false;
      return seen > 0 || !in_time;
    });
    on.exchange->start(0, on.view(on.a.data(), on.a.size()));
    on.exchange->finish();
    on.device->finish(on.queue);
    EXPECT_TRUE(in_time);
    EXPECT_EQ(on.b, Values(300, 4.0f));
  });
}

TEST(Staging, FaultsAreSeenAndLeaveZeros) {
  run_local(2, [](Group& group) {
    Staged on(group);
    if (group.rank() == 1) on.b[7] = NAN;
    on.exchange->start(1, on.view(on.b.data(), on.b.size()));
    on.exchange->start(0, on.view(on.a.data(), on.a.size()));
    EXPECT_TRUE(on.exchange->finish().skipped);
    on.device->finish(on.queue);
    EXPECT_EQ(on.a, Values(1000, 0.0f));
    EXPECT_EQ(on.b, Values(300, 0.0f));
  });
}

TEST(Staging, ADeviceThatIsStuckEndsTheStepAtTheDeadline) {
  run_local(1, [](Group& group) {
    group.set_deadline(std::chrono::milliseconds(100));
    auto on = std::make_unique<Staged>(group);
    on->device->stop_now();
    on->exchange->start(1, on->view(on->b.data(), on->b.size()));
    on->exchange->start(0, on->view(on->a.data(), on->a.size()));
    EXPECT_THAT(error_of([&] { on->exchange->finish(); }),
                HasSubstr("has not arrived from fake:0 within 100 ms"));
    on->device->fail_now();  // it would be waited for otherwise
  });
}

TEST(Staging, ADeviceThatFailsEndsTheExchange) {
  run_local(1, [](Group& group) {
    Staged on(group);
    on.device->fail_now();
    on.exchange->start(1, on.view(on.b.data(), on.b.size()));
    on.exchange->start(0, on.view(on.a.data(), on.a.size()));
    EXPECT_THAT(error_of([&] { on.exchange->finish(); }), HasSubstr("fake:0"));
    EXPECT_THAT(error_of([&] { on.exchange->regroup(group, 2); }), HasSubstr("a device's memory"));
  });
}

TEST(Staging, AnExchangeThatIsDestroyedWaitsForItsCopies) {
  run_local(1, [](Group& group) {
    auto on = std::make_unique<Staged>(group);
    on->exchange->start(1, on->view(on->b.data(), on->b.size()));
    on->exchange.reset();
    EXPECT_EQ(on->device->allocations, 0);
  });
}

}  // namespace
}  // namespace thinwire::testing
