// Streams that are compressed in a device's memory: the processor's results, fewer copies, and
// state that moves.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "device/testing/fake_device.h"
#include "exchange/testing/device_worker.h"
#include "exchange/testing/error_of.h"
#include "exchange/testing/exchange_testing.h"
#include "exchange/testing/staged_exchange.h"

namespace thinwire::testing {
namespace {

using ::testing::HasSubstr;

class DeviceStreams : public ::testing::TestWithParam<std::pair<const char*, const char*>> {};

TEST_P(DeviceStreams, GiveTheProcessorsMeansAndNorms) {
  const auto [codec, feedback] = GetParam();
  run_local(2, [&, codec = codec, feedback = feedback](Group& group) {
    Store here, there;
    DeviceWorker on_processor(group, here, gather_options(codec, feedback),
                              WorkerPlace::kProcessor);
    DeviceWorker on_device(group, there, gather_options(codec, feedback), WorkerPlace::kDevice);
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
                                           std::pair("sidco:law=gamma_pareto", "residual"),
                                           std::pair("dgc:density=0.1,values=bf16", "residual"),
                                           std::pair("adacomp", "residual"),
                                           std::pair("dgc:density=0.05", "dgc:clip=0.5"),
                                           std::pair("topk:density=0.05", "ahead:clip=0.5"),
                                           std::pair("topk:density=0.1", "ahead:nesterov=true"),
                                           std::pair("int8", "velocity"),
                                           std::pair("signum", "momentum"),
                                           std::pair("bf16", "none")));

// Methods with owners: the device encodes and decodes, and owners add on the processor.
class OwnedDeviceStreams
    : public ::testing::TestWithParam<std::tuple<const char*, const char*, const char*, int>> {};

TEST_P(OwnedDeviceStreams, GiveTheProcessorsMeans) {
  const auto [method, codec, feedback, ranks] = GetParam();
  const ExchangeOptions options{
      .codec = codec, .feedback = feedback, .method = method, .chunk_values = 512};
  run_local(ranks, [&](Group& group) {
    Store here, there;
    DeviceWorker on_processor(group, here, options, WorkerPlace::kProcessor);
    DeviceWorker on_device(group, there, options, WorkerPlace::kDevice);
    for (uint64_t step = 0; step < 4; ++step) {
      on_device.left_out = on_processor.left_out = step == 2 ? 1 : SIZE_MAX;
      const auto spoil = [&](std::vector<Values>& tensors) {
        if (step == 1 && group.rank() == group.size() - 1) tensors[0][7] = NAN;
      };
      const auto expected = on_processor.step(step, spoil);
      ASSERT_EQ(on_device.step(step, spoil), expected) << step;
      ASSERT_EQ(on_device.report.skipped, step == 1);
      EXPECT_EQ(on_device.report.sent_bytes, on_processor.report.sent_bytes);
      for (size_t i = 0; i < on_processor.report.streams.size(); ++i) {
        const StreamCounters& a = on_processor.report.streams[i];
        const StreamCounters& b = on_device.report.streams[i];
        EXPECT_EQ(b.why_staged, "");
        if (step == 1) continue;  // parts before the NaN were encoded here
        EXPECT_EQ(a.kept, b.kept);
        EXPECT_EQ(a.payload_bytes, b.payload_bytes);
        EXPECT_EQ(a.frame_bytes, b.frame_bytes);
        EXPECT_NEAR(a.rest_norm, b.rest_norm, 1e-6 * (1 + a.rest_norm));
        EXPECT_NEAR(a.gradient_norm, b.gradient_norm, 1e-6 * (1 + a.gradient_norm));
      }
    }
    const StateArrays a = here.save(), b = there.save();
    ASSERT_EQ(a.size(), b.size());
    for (size_t i = 0; i < a.size(); ++i) EXPECT_EQ(a[i].data, b[i].data) << a[i].name;
  });
}

INSTANTIATE_TEST_SUITE_P(Methods, OwnedDeviceStreams,
                         ::testing::Values(std::tuple("scatter-reduce", "int8", "residual", 3),
                                           std::tuple("scatter-reduce", "int8", "residual", 1),
                                           std::tuple("scatter-reduce", "uniform:rounding=random",
                                                      "none", 2),
                                           std::tuple("scatter-reduce", "qsgd:norm=max", "dgc", 2),
                                           std::tuple("scatter-reduce", "int4", "ahead", 2),
                                           std::tuple("scatter-reduce", "sign", "residual", 2),
                                           std::tuple("dense", "fp16", "residual", 3),
                                           std::tuple("dense", "bf16", "none", 2)));

TEST(DeviceStreams, CopyPayloadsAlone) {
  run_local(2, [&](Group& group) {
    Store store, other;
    const ExchangeOptions options = gather_options("topk:density=0.01", "residual");
    DeviceWorker on_device(group, store, options, WorkerPlace::kDevice);
    DeviceWorker staged(group, other, options, WorkerPlace::kStaged);
    const size_t fetched = on_device.device->bytes_to_host;  // when the stream was tried
    const size_t sent = on_device.device->bytes_from_host;
    for (uint64_t step = 0; step < 3; ++step) EXPECT_EQ(on_device.step(step), staged.step(step));
    EXPECT_FALSE(staged.report.streams[0].on_device);
    const size_t values = 2000 + 3001;
    EXPECT_EQ(staged.report.device_to_host_bytes, 4 * values);
    EXPECT_EQ(staged.report.host_to_device_bytes, 4 * values);
    EXPECT_GT(on_device.report.device_to_host_bytes, 0u);
    EXPECT_LT(on_device.report.device_to_host_bytes, 4 * values / 10);
    EXPECT_LT(on_device.report.host_to_device_bytes, 4 * values / 10);
    EXPECT_EQ(staged.device->bytes_to_host, 3 * 4 * values);
    EXPECT_EQ(staged.device->bytes_from_host, 3 * 4 * values);
    // 50 values a step, and the counts by which they are found.
    EXPECT_LT(on_device.device->bytes_to_host - fetched, 3 * 4 * values / 10);
    EXPECT_LT(on_device.device->bytes_from_host - sent, 3 * 4 * values / 10);
  });
}

// Memories and encoders go from the processor to the device and back, through one store, and
// through saved state.
TEST(DeviceStreams, StateMovesBetweenProcessorAndDevice) {
  run_local(2, [&](Group& group) {
    const ExchangeOptions options = gather_options("sidco:density=0.05", "residual");
    Store always, store;
    DeviceWorker reference(group, always, options, WorkerPlace::kProcessor);
    std::vector<std::vector<std::vector<uint32_t>>> expected;
    for (uint64_t step = 0; step < 9; ++step) expected.push_back(reference.step(step));
    uint64_t step = 0;
    const auto run = [&](Store& in, WorkerPlace where) {
      ExchangeOptions from = options;
      from.first_step = step;
      DeviceWorker worker(group, in, from, where);
      for (int i = 0; i < 2; ++i, ++step) ASSERT_EQ(worker.step(step), expected[step]) << step;
    };
    run(store, WorkerPlace::kProcessor);
    run(store, WorkerPlace::kDevice);
    run(store, WorkerPlace::kProcessor);
    run(store, WorkerPlace::kDevice);
    std::vector<StateArrays> saved(2);
    saved[static_cast<size_t>(group.rank())] = store.save();
    Store loaded;
    if (group.rank() == 0) saved[1] = saved[0];
    if (group.rank() == 1) saved[0] = saved[1];
    loaded.load(saved, group.rank(), 2).or_throw();
    ExchangeOptions from = options;
    from.first_step = step;
    DeviceWorker worker(group, loaded, from, WorkerPlace::kStaged);
    EXPECT_EQ(worker.step(step), expected[step]);
  });
}

// Memories that go to the processor, and to the work of another generation, are made anew.
TEST(DeviceStreams, MomentumThatWasSetStays) {
  run_local(2, [&](Group& group) {
    const std::vector<Momentum> none(kDeviceTensors.size());
    const auto steps_on = [&](WorkerPlace where) {
      Store store;
      DeviceWorker worker(group, store, gather_options("int8", "velocity"), where);
      std::vector<std::vector<std::vector<uint32_t>>> steps = {worker.step(0)};
      worker.exchange().set_momentum(none);
      steps.push_back(worker.step(1));
      worker.exchange().regroup(group, 1);
      steps.push_back(worker.step(2));
      EXPECT_EQ(worker.report.streams[0].on_device, where == WorkerPlace::kDevice);
      ExchangeOptions other = worker.exchange().options();
      other.codec = "natural";
      worker.exchange().change(other);
      for (uint64_t step = 3; step < 5; ++step) steps.push_back(worker.step(step));
      EXPECT_FALSE(worker.report.streams[0].on_device);
      return steps;
    };
    const auto expected = steps_on(WorkerPlace::kProcessor);
    const auto found = steps_on(WorkerPlace::kDevice);
    for (size_t step = 0; step < expected.size(); ++step)
      EXPECT_EQ(found[step], expected[step]) << step;
  });
}

// What a codec, memory, method or schedule keeps from the device is staged, and the report says so.
TEST(DeviceStreams, OthersAreStaged) {
  run_local(2, [&](Group& group) {
    const auto why_staged = [&](const ExchangeOptions& options) {
      Store store, other;
      DeviceWorker there(group, store, options, WorkerPlace::kDevice);
      DeviceWorker here(group, other, options, WorkerPlace::kProcessor);
      EXPECT_EQ(there.step(0), here.step(0));
      EXPECT_EQ(there.report.streams[0].on_device, there.report.streams[0].why_staged.empty());
      EXPECT_EQ(here.report.streams[0].why_staged, "");
      return there.report.streams[0].why_staged;
    };
    EXPECT_EQ(why_staged(gather_options("int8", "residual")), "");
    EXPECT_THAT(why_staged(gather_options("natural", "none")), HasSubstr("natural"));
    EXPECT_THAT(why_staged(gather_options("topk:values=int8", "residual")),
                HasSubstr("with these options"));
    EXPECT_THAT(why_staged(gather_options("int8", "ef21")), HasSubstr("memory 'ef21"));
    EXPECT_THAT(why_staged({.codec = "topk", .feedback = "residual", .method = "sparse-reduce"}),
                HasSubstr("method sparse-reduce"));
    ExchangeOptions shards{.codec = "int8", .feedback = "residual", .method = "scatter-reduce"};
    EXPECT_EQ(why_staged(shards), "");
    shards.results = Results::kShard;
    EXPECT_THAT(why_staged(shards), HasSubstr("results are shards"));
    EXPECT_THAT(why_staged(gather_options("fp16 | 1: int8", "residual")), HasSubstr("schedule"));
    ExchangeOptions seen = gather_options("int8", "residual");
    seen.observe = [](const StreamSpec&, const Signal&, const Call&) {};
    EXPECT_THAT(why_staged(seen), HasSubstr("observed"));
    ExchangeOptions asked = gather_options("int8", "residual");
    asked.compress_on = CompressOn::kProcessor;
    EXPECT_THAT(why_staged(asked), HasSubstr("asked for"));
  });
}

TEST(DeviceStreams, TensorsOfTheProcessorAndBfloatsTakePart) {
  run_local(2, [&](Group& group) {
    const ExchangeOptions options = gather_options("int8", "residual");
    Store here, there;
    auto host = make_exchange(group, here, kDeviceTensors, options);
    ExchangeOptions on = options;
    const auto device = std::make_shared<FakeDevice>(5);
    on.device = device;
    auto exchange = make_exchange(group, there, kDeviceTensors, on);
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
      EXPECT_EQ(float_bits(a_there), float_bits(a));
      EXPECT_EQ(b_there, b);
    }
  });
}

// The last kernels of a step, which nobody waits for, are those that write zeros where it is
// skipped.
TEST(DeviceStreams, CallersQueuesGoOnOnceTheMeansAreThere) {
  run_local(1, [](Group& group) {
    Store store;
    ExchangeOptions options = gather_options("int8", "residual");
    options.max_skipped = 0;
    DeviceWorker worker(group, store, options, WorkerPlace::kDevice, true);
    const auto zeros = worker.step(0, [](std::vector<Values>& tensors) { tensors[0][7] = NAN; });
    EXPECT_TRUE(worker.report.skipped);
    EXPECT_EQ(zeros[0], std::vector<uint32_t>(2000));
    EXPECT_EQ(zeros[1], std::vector<uint32_t>(3001));
  });
}

TEST(DeviceStreams, ADeviceThatFailsInAStepEndsTheExchange) {
  run_local(1, [](Group& group) {
    Store store;
    DeviceWorker worker(group, store, gather_options("int8", "residual"), WorkerPlace::kDevice);
    worker.step(0);
    worker.device->fail_now();
    EXPECT_THAT(error_of([&] { worker.step(1); }), HasSubstr("fake:0"));
  });
}

}  // namespace
}  // namespace thinwire::testing
