// The driver's functions as they are called, against a library that stands in for the driver, and what is said where
// there is none. Nothing here has run on a GPU.
// SPDX-License-Identifier: Apache-2.0
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>

#include "device/coded_values.h"
#include "device/cuda/cuda_launcher.h"
#include "device/cuda/driver.h"
#include "device/cuda/nvrtc.h"
#include "device/testing/find_nvrtc.h"
#include "thinwire/device_memory.h"
#include "thinwire/status.h"

namespace thinwire::device {
namespace {

using testing::HasSubstr;

// The driver is looked for once in a process, so each of these runs in one of its own.
template <class Body>
void in_process(const char* driver, const Body& body) {
  EXPECT_EXIT(
      {
        setenv("THINWIRE_CUDA_DRIVER", driver, 1);
        body();
        std::exit(testing::Test::HasFailure() ? 1 : 0);
      },
      testing::ExitedWithCode(0), "");
}

std::string heard() {
  void* const library = dlopen(THINWIRE_FAKE_DRIVER, RTLD_NOW | RTLD_NOLOAD);
  return reinterpret_cast<const char* (*)()>(dlsym(library, "fake_driver_heard"))();
}

int contexts_left() {
  void* const library = dlopen(THINWIRE_FAKE_DRIVER, RTLD_NOW | RTLD_NOLOAD);
  return reinterpret_cast<int (*)()>(dlsym(library, "fake_driver_depth"))();
}

std::string error_of_cuda(int device) {
  try {
    make_cuda_memory(device);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
    return error.what();
  }
  return "";
}

TEST(CudaMemory, SaysThatThereIsNoDriver) {
  in_process("/nowhere/libcuda.so.1", [] {
    EXPECT_THAT(error_of_cuda(0), testing::AllOf(HasSubstr("there is no NVIDIA driver"),
                                                 HasSubstr("/nowhere/libcuda.so.1")));
  });
}

TEST(CudaMemory, SaysThatThereIsNoGpu) {
  in_process(THINWIRE_FAKE_DRIVER, [] {
    setenv("THINWIRE_FAKE_NO_GPU", "1", 1);
    EXPECT_THAT(error_of_cuda(0), HasSubstr("finds no GPU: no CUDA-capable device is detected"));
  });
}

TEST(CudaMemory, SaysHowManyDevicesThereAre) {
  in_process(THINWIRE_FAKE_DRIVER, [] {
    EXPECT_THAT(error_of_cuda(3), HasSubstr("there is no cuda:3; the driver has 1 devices"));
  });
}

TEST(CudaMemory, CopiesInItsContextOnItsQueues) {
  in_process(THINWIRE_FAKE_DRIVER, [] {
    const auto memory = make_cuda_memory(0);
    EXPECT_EQ(memory->name(), "cuda:0");
    const DeviceQueue queue = memory->make_queue();
    EXPECT_NE(queue, memory->make_queue());
    std::byte* const host = memory->allocate_host(8);
    const uint64_t there = 0x0123456789ABCDEF;
    uint64_t back = 0;
    memory->copy_to_host(host, &there, sizeof there, queue);
    memory->copy_from_host(&back, host, sizeof back, queue);
    EXPECT_EQ(back, there);
    const auto event = memory->make_event();
    memory->record(*event, queue);
    memory->wait_for(queue, *event);
    EXPECT_FALSE(memory->reached(*event));
    EXPECT_TRUE(memory->reached(*event));
    memory->free_host(host);
    EXPECT_EQ(heard(),
              "priorities stream priorities stream host_alloc to_host to_device event record "
              "wait_event query query ");
    EXPECT_EQ(contexts_left(), 0);
  });
}

TEST(CudaMemory, AllocatesAndRunsKernelsOnItsQueues) {
  in_process(THINWIRE_FAKE_DRIVER, [] {
    setenv("THINWIRE_CACHE", (testing::TempDir() + "/thinwire_memory").c_str(), 1);
    const auto memory = make_cuda_memory(0, nvrtc_folders());
    void* const values = memory->allocate(4000);
    std::string why;
    const DeviceQueue queue = memory->make_queue();
    const auto launcher = memory->make_launcher(queue, why);
    if (launcher == nullptr) {  // no NVRTC on this machine
      EXPECT_THAT(why, HasSubstr("nvidia-cuda-nvrtc"));
      return;
    }
    launch(*launcher, "selection/fill_words", Grid{.blocks = 4, .threads = 256}, values,
           uint64_t{1000}, uint32_t{0});
    EXPECT_EQ(heard(),
              "alloc priorities stream module function:fill_words launch:4x256,stream1,count1000 ");
    memory->free(values);
    EXPECT_EQ(contexts_left(), 0);
  });
}

TEST(CudaMemory, SaysThatThereIsNoNvrtc) {
  in_process(THINWIRE_FAKE_DRIVER, [] {
    try {
      const Nvrtc nvrtc;
      return;  // the system has one
    } catch (const Error&) {
    }
    std::string why;
    const auto memory = make_cuda_memory(0);
    EXPECT_EQ(memory->make_launcher(memory->make_queue(), why), nullptr);
    EXPECT_THAT(why, HasSubstr("pip install nvidia-cuda-nvrtc"));
  });
}

TEST(CudaLauncher, LoadsATextOnceAndLaunchesItsKernels) {
  try {
    const Nvrtc nvrtc(nvrtc_folders());
  } catch (const Error& error) {
    GTEST_SKIP() << error.what();
  }
  in_process(THINWIRE_FAKE_DRIVER, [] {
    setenv("THINWIRE_CACHE", (testing::TempDir() + "/thinwire_launcher").c_str(), 1);
    const CudaContext context(0);
    EXPECT_EQ(context.device_name(), "Fake GPU");
    EXPECT_EQ(context.architecture(), "sm_90");
    CudaLauncher on(context, reinterpret_cast<void*>(uintptr_t{5}), nvrtc_folders());
    float values[1000] = {};
    std::byte bytes[2000];
    encode_floats(on, Float16::kHalf, values, 1000, bytes, nullptr);
    encode_floats(on, Float16::kHalf, values, 300, bytes, nullptr);
    EXPECT_EQ(heard(),
              "module function:encode_half launch:4x256,stream5,count1000 "
              "launch:2x256,stream5,count300 ");
    EXPECT_EQ(contexts_left(), 0);
  });
}

}  // namespace
}  // namespace thinwire::device
