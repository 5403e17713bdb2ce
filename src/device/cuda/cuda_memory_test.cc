// The driver's functions as they are called, against a library that stands in for the driver, and
// what is said where there is none. Nothing here has run on a GPU.
// SPDX-License-Identifier: Apache-2.0
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>

#include "device/coded_values.h"
#include "device/cuda/cuda_launcher.h"
#include "device/cuda/cuda_modules.h"
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

template <class Function>
Function* control(const char* name) {
  void* const library = dlopen(THINWIRE_FAKE_DRIVER, RTLD_NOW | RTLD_NOLOAD);
  return reinterpret_cast<Function*>(dlsym(library, name));
}

std::string heard() { return control<const char*()>("fake_driver_heard")(); }
int contexts_left() { return control<int()>("fake_driver_depth")(); }
int things_left() { return control<int()>("fake_driver_left")(); }
int calls_refused() { return control<int()>("fake_driver_refused")(); }
void shut_down() { control<void()>("fake_driver_shut_down")(); }
void fail_next(int code) { control<void(int)>("fake_driver_fail")(code); }

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
    EXPECT_THAT(error_of_cuda(0), HasSubstr("finds no GPU: CUDA_ERROR_NO_DEVICE (100): no "
                                            "CUDA-capable device is detected"));
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
              "retain priorities stream priorities stream host_alloc to_host to_device event "
              "record wait_event query query ");
    EXPECT_EQ(contexts_left(), 0);
  });
}

TEST(CudaMemory, FreedQueuesAreDestroyedAndMemoryEnds) {
  in_process(THINWIRE_FAKE_DRIVER, [] {
    const auto memory = make_cuda_memory(0);
    const DeviceQueue kept = memory->make_queue(), freed = memory->make_queue();
    memory->free_queue(freed);
    EXPECT_THAT(heard(), testing::EndsWith("stream_destroy:2 "));
    memory->free_queue(freed);  // it is not theirs any more
    EXPECT_THAT(heard(), testing::EndsWith("stream stream_destroy:2 "));
    EXPECT_NE(kept, nullptr);
    EXPECT_EQ(memory->allocate(size_t{1} << 41), nullptr);
  });
}

// What is freed without a current context is not freed at all.
TEST(CudaMemory, FreesEverythingInItsContext) {
  in_process(THINWIRE_FAKE_DRIVER, [] {
    auto memory = make_cuda_memory(0);
    void* const values = memory->allocate(100);
    std::byte* const host = memory->allocate_host(100);
    auto event = memory->make_event();
    const DeviceQueue freed = memory->make_queue();
    memory->make_queue();
    EXPECT_EQ(things_left(), 5);
    memory->free(values);
    memory->free_host(host);
    event.reset();
    memory->free_queue(freed);
    EXPECT_EQ(things_left(), 1);
    memory.reset();
    EXPECT_EQ(things_left(), 0);
    EXPECT_EQ(calls_refused(), 0);
    EXPECT_EQ(contexts_left(), 0);
  });
}

// A driver shuts down before the last objects of a process end. An exception of theirs would end it
// at once.
TEST(CudaMemory, FreesNothingOnceTheDriverShutsDown) {
  in_process(THINWIRE_FAKE_DRIVER, [] {
    auto memory = make_cuda_memory(0);
    void* const values = memory->allocate(100);
    std::byte* const host = memory->allocate_host(100);
    auto event = memory->make_event();
    const DeviceQueue freed = memory->make_queue();
    memory->make_queue();
    shut_down();
    memory->free(values);
    memory->free_host(host);
    event.reset();
    memory->free_queue(freed);
    memory.reset();
    EXPECT_EQ(things_left(), 5);
    EXPECT_EQ(contexts_left(), 0);
  });
}

TEST(CudaMemory, ErrorsHaveTheDevicesAndTheDriversNames) {
  in_process(THINWIRE_FAKE_DRIVER, [] {
    const auto memory = make_cuda_memory(0);
    const DeviceQueue queue = memory->make_queue();
    std::byte byte{};
    const auto error = [&](int code, const auto& call) {
      fail_next(code);
      try {
        call();
      } catch (const Error& caught) {
        EXPECT_EQ(caught.code(), ErrorCode::kIo);
        return std::string(caught.what());
      }
      return std::string();
    };
    EXPECT_EQ(error(700, [&] { memory->copy_to_host(&byte, &byte, 1, queue); }),
              "device cuda:0: copying to the host: CUDA_ERROR_ILLEGAL_ADDRESS (700): an illegal "
              "memory access was encountered");
    EXPECT_EQ(error(2, [&] { memory->allocate_host(64); }),
              "device cuda:0: allocating 64 bytes of page-locked memory: "
              "CUDA_ERROR_OUT_OF_MEMORY (2): out of memory");
    EXPECT_EQ(error(98765, [&] { memory->make_event(); }),
              "device cuda:0: making an event: an error of the driver (98765)");
    EXPECT_EQ(contexts_left(), 0);
  });
}

TEST(CudaMemory, IsOneForAllThatUseADevice) {
  in_process(THINWIRE_FAKE_DRIVER, [] {
    auto one = make_cuda_memory(0);
    auto other = make_cuda_memory(0, {"/nowhere"});
    EXPECT_EQ(one, other);
    EXPECT_EQ(heard(), "retain ");
    one->make_queue();
    one.reset();
    EXPECT_EQ(things_left(), 1);
    other.reset();
    EXPECT_EQ(things_left(), 0);
    EXPECT_NE(make_cuda_memory(0), nullptr);
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
    // Another exchange's, which finds the kernels loaded.
    const DeviceQueue other = memory->make_queue();
    launch(*memory->make_launcher(other, why), "selection/fill_words",
           Grid{.blocks = 1, .threads = 256}, values, uint64_t{9}, uint32_t{0});
    EXPECT_EQ(heard(),
              "retain alloc priorities stream module function:fill_words "
              "launch:4x256,stream1,count1000 priorities stream launch:1x256,stream2,count9 ");
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

TEST(CudaModules, AreUnloadedInTheirContext) {
  try {
    const Nvrtc nvrtc(nvrtc_folders());
  } catch (const Error& error) {
    GTEST_SKIP() << error.what();
  }
  for (const bool ended : {false, true})
    in_process(THINWIRE_FAKE_DRIVER, [=] {
      setenv("THINWIRE_CACHE", (testing::TempDir() + "/thinwire_modules").c_str(), 1);
      {
        const auto context = std::make_shared<const CudaContext>(0);
        CudaModules modules(context, nvrtc_folders());
        {
          const CudaContext::Current current(*context);
          modules.function("half_float/encode_half");
        }
        EXPECT_EQ(things_left(), 1);
        if (ended) shut_down();
      }
      EXPECT_EQ(things_left(), ended ? 1 : 0);
      EXPECT_EQ(calls_refused(), 0);
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
    const auto context = std::make_shared<const CudaContext>(0);
    EXPECT_EQ(context->device_name(), "Fake GPU");
    EXPECT_EQ(context->architecture(), "sm_90");
    CudaLauncher on(std::make_shared<CudaModules>(context, nvrtc_folders()),
                    reinterpret_cast<void*>(uintptr_t{5}));
    float values[1000] = {};
    std::byte bytes[2000];
    encode_floats(on, Float16::kHalf, values, 1000, bytes, nullptr);
    encode_floats(on, Float16::kHalf, values, 300, bytes, nullptr);
    EXPECT_EQ(heard(),
              "retain module function:encode_half launch:4x256,stream5,count1000 "
              "launch:2x256,stream5,count300 ");
    EXPECT_EQ(contexts_left(), 0);
  });
}

}  // namespace
}  // namespace thinwire::device
