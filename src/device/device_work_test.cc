// The work of a thread on a fake device: scratch memory, pages, patience, and what is left behind.
// SPDX-License-Identifier: Apache-2.0
#include "device/device_work.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "device/testing/fake_device.h"
#include "thinwire/status.h"

namespace thinwire::device {
namespace {

using ::testing::HasSubstr;
using thinwire::testing::FakeDevice;

std::span<const std::byte> bytes_of(const std::vector<float>& values) {
  return std::as_bytes(std::span(values));
}

TEST(DeviceWork, APageThatCouldNotBeMadeIsMadeTheNextTime) {
  const auto device = std::make_shared<FakeDevice>();
  DeviceWork work(device);
  const std::vector<float> few(10, 2.0f), many(100000, 3.0f);
  auto* const there = work.room<float>(many.size());
  work.send(there, bytes_of(few));
  device->refuses_host_memory = true;
  EXPECT_THROW(work.send(there, bytes_of(many)), Error);
  EXPECT_THROW(work.send(there, bytes_of(few)), Error);  // the smaller page is gone
  device->refuses_host_memory = false;
  work.send(there, bytes_of(few));
  EXPECT_EQ(work.fetch(there), 2.0f);
  work.send(there, bytes_of(many));
  std::vector<float> back(many.size());
  device->refuses_host_memory = true;
  EXPECT_THROW(work.fetch(std::as_writable_bytes(std::span(back)), there), Error);
  EXPECT_THROW(work.fetch(there), Error);
  device->refuses_host_memory = false;
  work.fetch(std::as_writable_bytes(std::span(back)), there);
  EXPECT_EQ(back, many);
}

TEST(DeviceWork, LargeVectorsPassThroughPagesOf16MiB) {
  const auto device = std::make_shared<FakeDevice>();
  DeviceWork work(device);
  std::vector<float> values((size_t{36} << 20) / sizeof(float) + 1);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 65537);
  auto* const there = work.room<float>(values.size());
  work.send(there, bytes_of(values));
  std::vector<float> back(values.size());
  work.fetch(std::as_writable_bytes(std::span(back)), there);
  EXPECT_EQ(back, values);
  EXPECT_EQ(work.bytes_sent(), 4 * values.size());
  EXPECT_EQ(work.bytes_fetched(), 4 * values.size());
  EXPECT_EQ(device->largest_page, size_t{16} << 20);
}

TEST(DeviceWork, SaysHowMuchThereIsNoRoomFor) {
  const auto device = std::make_shared<FakeDevice>();
  const auto work = std::make_shared<DeviceWork>(device);
  device->room = 1000;
  try {
    DeviceFloats(work, 251);
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "device fake:0: no room for 1004 bytes");
  }
  const DeviceFloats some(work, 250);
  EXPECT_EQ(device->device_allocations, 1);
  device->refused_text = "selection";
  EXPECT_THROW(DeviceFloats(work, 250), Error);
  EXPECT_EQ(device->device_allocations, 1);
}

TEST(DeviceWork, ADeviceThatCatchesUpIsUsedAgain) {
  const auto device = std::make_shared<FakeDevice>();
  DeviceWork work(device);
  work.set_patience(std::chrono::milliseconds(20));
  auto* const there = work.room<float>(4);
  fill(work, {there, 4}, 5.0f);
  device->stop_now();
  for (int i = 0; i < 2; ++i) {
    try {
      work.await();
      ADD_FAILURE();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kTimeout);
      EXPECT_THAT(error.what(), HasSubstr("within 20 ms"));
    }
  }
  work.set_patience(std::chrono::seconds(30));
  device->go_on();
  EXPECT_EQ(work.fetch(there), 5.0f);
}

TEST(DeviceWork, SaysWhyADeviceRunsNoKernels) {
  try {
    const DeviceWork work(std::make_shared<FakeDevice>(1, false));
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
    EXPECT_THAT(error.what(), HasSubstr("fake:0 runs no kernels"));
  }
}

TEST(DeviceWork, GivesUpADeviceThatIsStuck) {
  const auto device = std::make_shared<FakeDevice>();
  DeviceWork work(device);
  work.set_patience(std::chrono::milliseconds(50));
  device->stop_now();
  try {
    work.await();
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kTimeout);
    EXPECT_THAT(error.what(), HasSubstr("fake:0: kernels have not ended within 50 ms"));
  }
}

TEST(DeviceWork, FreesItsMemory) {
  const auto device = std::make_shared<FakeDevice>();
  {
    const auto work = std::make_shared<DeviceWork>(device);
    const DeviceFloats floats(work, 1000);
    for (size_t count = 1; count < 1 << 20; count *= 3) {
      work->begin();
      device::fill(*work, {work->room<float>(count), count}, 1.0f);
      device::fill(*work, {work->room<float>(2 * count), 2 * count}, 1.0f);
      work->await();
    }
    EXPECT_LE(device->device_allocations, 3);
  }
  EXPECT_EQ(device->device_allocations, 0);
  EXPECT_EQ(device->allocations, 0);
}

// What it may still write to must not be given to others.
TEST(DeviceWork, MemoryOfAStuckDeviceStays) {
  const auto device = std::make_shared<FakeDevice>();
  {
    DeviceWork work(device);
    work.set_patience(std::chrono::milliseconds(20));
    work.room<float>(4);
    device->stop_now();
  }
  EXPECT_EQ(device->device_allocations, 1);
  EXPECT_EQ(device->queues(), 0u);
  device->go_on();
  {
    DeviceWork work(device);
    work.room<float>(4);
  }
  EXPECT_EQ(device->device_allocations, 1);
}

}  // namespace
}  // namespace thinwire::device
