// Devices that are late, short of memory, or without a compiler that takes the texts: what is
// staged, what is kept, and what callers may rely on after a failure.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "device/testing/fake_device.h"
#include "exchange/testing/device_worker.h"
#include "exchange/testing/error_of.h"
#include "exchange/testing/exchange_testing.h"
#include "exchange/testing/tampering_group.h"
#include "thinwire/frame.h"

namespace thinwire::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Steps = std::vector<std::vector<std::vector<uint32_t>>>;

Steps steps_of_processor(Group& group, const ExchangeOptions& options, uint64_t count) {
  Store store;
  DeviceWorker worker(group, store, options, WorkerPlace::kProcessor);
  Steps steps;
  for (uint64_t step = 0; step < count; ++step) steps.push_back(worker.step(step));
  return steps;
}

// Tensors in a device's memory, given to an exchange without a queue that reads the means.
class DirectTensors {
 public:
  DirectTensors(FakeDevice& device, uint64_t number) : queue_(device.make_queue()) {
    for (const TensorSpec& spec : kDeviceTensors)
      values.push_back(device::make_values(device::Values::kHeavyTail, spec.count(), 100 * number));
  }
  void start(Exchange& exchange) {
    for (size_t i = values.size(); i-- > 0;)
      exchange.start(i, {.data = FakeDevice::hide(values[i].data()),
                         .count = values[i].size(),
                         .device = Device::kCuda,
                         .queue = queue_});
  }
  DeviceQueue queue() const noexcept { return queue_; }

  std::vector<Values> values;

 private:
  DeviceQueue queue_;
};

// The step that a late device spoiled never happened, and what its memories held before is not
// lost.
TEST(DeviceFaults, AStoreOutlivesAnExchangeWhoseDeviceWasLate) {
  run_local(1, [](Group& group) {
    ExchangeOptions options = gather_options("topk:density=0.05", "residual");
    const Steps expected = steps_of_processor(group, options, 3);
    group.set_deadline(std::chrono::milliseconds(500));
    Store store;
    const auto device = std::make_shared<FakeDevice>(3);
    {
      DeviceWorker worker(group, store, options, WorkerPlace::kDevice, false, device);
      EXPECT_EQ(worker.step(0), expected[0]);
    }
    options.device = device;
    options.first_step = 1;
    DirectTensors spoilt(*device, 1);
    {
      const auto exchange = make_exchange(group, store, kDeviceTensors, options);
      device->stops_at = device->launches + 4;
      spoilt.start(*exchange);
      EXPECT_THAT(error_of([&] { exchange->finish(); }),
                  AllOf(HasSubstr("fake:0"), HasSubstr("have not ended within 500 ms")));
      device->go_on();
    }
    group.set_deadline(std::chrono::seconds(30));
    DeviceWorker worker(group, store, options, WorkerPlace::kDevice, false, device);
    EXPECT_EQ(worker.step(1), expected[1]);
    EXPECT_EQ(worker.step(2), expected[2]);
    EXPECT_TRUE(worker.report.streams[0].on_device);
  });
}

TEST(DeviceFaults, StreamsAreStagedWhereTheDeviceHasNoRoomForThem) {
  run_local(2, [](Group& group) {
    ExchangeOptions options = gather_options("sidco:density=0.05", "residual");
    const Steps expected = steps_of_processor(group, options, 4);
    Store store;
    const auto device = std::make_shared<FakeDevice>(static_cast<uint32_t>(group.rank()));
    uint64_t step = 0;
    const auto run = [&](bool on_device) {
      options.first_step = step;
      DeviceWorker worker(group, store, options, WorkerPlace::kDevice, false, device);
      EXPECT_EQ(worker.step(step), expected[step]);
      ++step;
      for (const StreamCounters& stream : worker.report.streams) {
        if (stream.values == 0) continue;  // it needs none
        EXPECT_EQ(stream.on_device, on_device);
        if (!on_device) {
          EXPECT_THAT(stream.why_staged, HasSubstr("device fake:0: no room for"));
        }
      }
    };
    run(true);
    device->room = 1000;  // no residual fits, and the one that is there moves to the processor
    run(false);
    device->room = 30000;  // residuals fit, but not what codecs need
    run(false);
    device->room = SIZE_MAX;
    run(true);
  });
}

TEST(DeviceFaults, StreamsAreStagedWhereAKernelDoesNotCompile) {
  run_local(2, [](Group& group) {
    for (const auto& [codec, text] :
         {std::pair("int8", "scaled_blocks"), std::pair("int8", "memories"),
          std::pair("int8", "selection"), std::pair("sidco:density=0.05", "tails"),
          std::pair("sidco:density=0.05", "positions")}) {
      const ExchangeOptions options = gather_options(codec, "residual");
      const Steps expected = steps_of_processor(group, options, 2);
      Store store;
      const auto device = std::make_shared<FakeDevice>(1);
      device->refused_text = text;
      DeviceWorker worker(group, store, options, WorkerPlace::kDevice, false, device);
      EXPECT_EQ(worker.step(0), expected[0]);
      EXPECT_EQ(worker.step(1), expected[1]);
      EXPECT_FALSE(worker.report.streams[0].on_device);
      EXPECT_THAT(worker.report.streams[0].why_staged, HasSubstr(text));
    }
  });
}

TEST(DeviceFaults, WhoAsksForTheDeviceIsToldWhatIsInTheWay) {
  run_local(2, [](Group& group) {
    const auto error = [&](ExchangeOptions options, const std::shared_ptr<FakeDevice>& device) {
      Store store;
      options.compress_on = CompressOn::kDevice;
      options.device = device;
      return error_of([&] { make_exchange(group, store, kDeviceTensors, options); });
    };
    const auto device = std::make_shared<FakeDevice>(1);
    EXPECT_EQ(error(gather_options("int8", "residual"), device), "");
    EXPECT_THAT(error(gather_options("natural", "none"), device),
                AllOf(HasSubstr("is not compressed on fake:0: "), HasSubstr("natural")));
    EXPECT_THAT(error(gather_options("int8", "residual"), std::make_shared<FakeDevice>(1, false)),
                HasSubstr("runs no kernels"));
    // One rank alone.
    if (group.rank() == 1) device->room = 1000;
    EXPECT_THAT(error(gather_options("int8", "residual"), device),
                AllOf(HasSubstr("on rank 1"), HasSubstr("no room")));
  });
}

TEST(DeviceFaults, AnExchangeLeavesNoQueueAndNoMemoryBehind) {
  run_local(1, [](Group& group) {
    const auto device = std::make_shared<FakeDevice>(1);
    ExchangeOptions options = gather_options("int8", "residual");
    options.device = device;
    const DeviceQueue caller = device->make_queue();
    for (int i = 0; i < 3; ++i) {
      Store store;
      const auto exchange = make_exchange(group, store, kDeviceTensors, options);
      Values a(2000, 1.0f);
      std::vector<uint16_t> b(3001, 0x3F80);  // bfloat16: staged
      exchange->start(0, {.data = FakeDevice::hide(a.data()),
                          .count = a.size(),
                          .device = Device::kCuda,
                          .queue = caller});
      exchange->start(1, {.data = FakeDevice::hide(b.data()),
                          .count = b.size(),
                          .dtype = DType::kBFloat16,
                          .device = Device::kCuda,
                          .queue = caller});
      exchange->finish();
      EXPECT_GT(device->queues(), 2u);
      device->finish(caller);
    }
    EXPECT_EQ(device->queues(), 1u);
    EXPECT_EQ(device->allocations, 0);
    EXPECT_EQ(device->device_allocations, 0);
  });
}

// A whole frame of the right sender and place, whose payload lacks its last block.
TEST(DeviceFaults, APartOfAMeanThatLacksABlockIsCorrupt) {
  for (const WorkerPlace where : {WorkerPlace::kProcessor, WorkerPlace::kDevice})
    run_local(2, [&](Group& group) {
      constexpr size_t kBlockBytes = 4 + 256;  // of int8
      bool tampers = false;
      TamperingGroup tampering(group, [&](int /*from*/, int /*tag*/, std::span<std::byte> message) {
        Result<Frame> read = read_frame(message);
        if (!tampers || !read || (read.value().header.flags & kFrameResult) == 0) return;
        FrameHeader header = read.value().header;
        ASSERT_GT(header.payload_size, kBlockBytes);
        header.payload_size -= kBlockBytes;
        seal_frame(header, message.first(kFrameHeaderSize + header.payload_size));
        tampers = false;
      });
      const ExchangeOptions options{
          .codec = "int8", .feedback = "residual", .method = "scatter-reduce"};
      Store plain_store, store;
      DeviceWorker plain(group, plain_store, options, WorkerPlace::kProcessor);
      DeviceWorker worker(tampering, store, options, where);
      EXPECT_EQ(worker.step(0), plain.step(0));
      tampers = group.rank() == 1;
      worker.step(1);
      EXPECT_FALSE(tampers) << "no mean has come";
      EXPECT_TRUE(worker.report.skipped);
      EXPECT_EQ(worker.report.fault.code, ErrorCode::kCorrupt);
      EXPECT_EQ(worker.report.fault.rank, 0);
      // The step never happened.
      EXPECT_EQ(worker.step(2).size(), kDeviceTensors.size());
      EXPECT_FALSE(worker.report.skipped);
    });
}

// The ranks' last message of a regroup does not come, when the streams of the next generation are
// there already.
TEST(DeviceFaults, ARegroupThatFailsLateLeavesTheQueuesOfThePreviousEpochAlone) {
  run_local(2, [](Group& group) {
    size_t messages = 0, last = SIZE_MAX;
    TamperingGroup tampering(group, [&](int, int, std::span<std::byte>) {
      if (++messages == last) throw Error(ErrorCode::kPeerLost, "the other rank is gone");
    });
    const auto device = std::make_shared<FakeDevice>(1);
    Store store;
    DeviceWorker worker(tampering, store, gather_options("int8", "residual"), WorkerPlace::kDevice,
                        false, device);
    worker.step(0);
    messages = 0;
    worker.exchange().regroup(tampering, 1);
    last = messages;
    worker.step(1);
    EXPECT_TRUE(worker.report.streams[0].on_device);
    messages = 0;
    EXPECT_THAT(error_of([&] { worker.exchange().regroup(tampering, 2); }),
                HasSubstr("the other rank is gone"));
    EXPECT_EQ(device->lost_operations, 0u);
  });
}

// Nobody waits for the kernel that writes the zeros of a skipped step; with the last of these,
// finish throws.
TEST(DeviceFaults, ZerosOfTheStepThatEndsARunComeBeforeWhatCallersDoNext) {
  run_local(1, [&](Group& group) {
    group.set_deadline(std::chrono::seconds(5));
    const auto device = std::make_shared<FakeDevice>(1);
    const auto slow = std::make_shared<SlowDevice>(device);
    slow->held = "selection/fill_words";
    ExchangeOptions options = gather_options("int8", "none");
    options.device = slow;
    options.max_skipped = 1;
    auto store = std::make_unique<Store>();  // whose memory of the stream has a share in its queue
    auto exchange = make_exchange(group, *store, {{"w", {3001}}}, options);
    slow->released = false;
    Values values(3001, 2.0f);
    values[7] = NAN;
    const DeviceQueue queue = device->make_queue();
    const auto start = [&] {
      exchange->start(0, {.data = FakeDevice::hide(values.data()),
                          .count = values.size(),
                          .device = Device::kCuda,
                          .queue = queue});
    };
    start();
    std::string error;  // of a start while the step is under way, and then of the run
    while (error = error_of(start), error.find("tensor 'w' is started") != std::string::npos)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT_THAT(error, HasSubstr("1 steps in a row were skipped"));
    EXPECT_EQ(error_of([&] { exchange->finish(); }), error);
    device->compute(queue, [&] { values.assign(values.size(), 7.0f); });
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    slow->released = true;
    device->finish(queue);
    exchange.reset();
    store.reset();
    EXPECT_EQ(values, Values(3001, 7.0f));
  });
}

// The kernel that zeroes the place of a mean may still be on its way when another rank is lost.
TEST(DeviceFaults, NothingIsWrittenIntoGradientsAfterAFailure) {
  std::atomic<SlowDevice*> of_rank_1 = nullptr;
  EXPECT_THAT(error_of([&] {
                run_local(2, [&](Group& group) {
                  ExchangeOptions options = gather_options("int8", "none");
                  const auto device =
                      std::make_shared<FakeDevice>(static_cast<uint32_t>(group.rank()));
                  const auto slow = std::make_shared<SlowDevice>(device);
                  slow->held = "selection/fill_words";
                  options.device = slow;
                  Store store;
                  auto exchange = make_exchange(group, store, {{"w", {3001}}}, options);
                  if (group.rank() == 0) {
                    while (of_rank_1 == nullptr || of_rank_1.load()->held_now == 0)
                      std::this_thread::sleep_for(std::chrono::milliseconds(1));
                    throw Error(ErrorCode::kIo, "rank 0 is gone");
                  }
                  slow->released = false;
                  of_rank_1 = slow.get();
                  Values values(3001, 2.0f);
                  const DeviceQueue queue = device->make_queue();
                  exchange->start(0, {.data = FakeDevice::hide(values.data()),
                                      .count = values.size(),
                                      .device = Device::kCuda,
                                      .queue = queue});
                  EXPECT_NE(error_of([&] { exchange->finish(); }), "");
                  // The caller's next computation; it has the time to overtake the kernel.
                  device->compute(queue, [&] { values.assign(values.size(), 7.0f); });
                  std::this_thread::sleep_for(std::chrono::milliseconds(20));
                  slow->released = true;
                  device->finish(queue);
                  exchange.reset();
                  EXPECT_EQ(values, Values(3001, 7.0f));
                });
              }),
              HasSubstr("rank 0 is gone"));
}

}  // namespace
}  // namespace thinwire::testing
