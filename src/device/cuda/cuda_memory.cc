// DeviceMemory by CUDA's driver.
// SPDX-License-Identifier: Apache-2.0
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "device/cuda/cuda_launcher.h"
#include "device/cuda/driver.h"
#include "device/cuda/nvrtc.h"
#include "thinwire/device_memory.h"
#include "thinwire/status.h"

namespace thinwire::device {
namespace {

constexpr unsigned kPortable = 1;       // CU_MEMHOSTALLOC_PORTABLE: page-locked for all contexts
constexpr unsigned kNonBlocking = 1;    // CU_STREAM_NON_BLOCKING: waits for no default stream
constexpr unsigned kDisableTiming = 2;  // CU_EVENT_DISABLE_TIMING

CudaAddress address(const void* memory) { return reinterpret_cast<CudaAddress>(memory); }

class CudaEvent final : public DeviceEvent {
 public:
  explicit CudaEvent(const CudaContext& context) : context_(context) {
    const CudaContext::Current current(context_);
    context_.driver().check(context_.driver().event_create(&handle, kDisableTiming),
                            "making an event");
  }
  ~CudaEvent() override { context_.driver().event_destroy(handle); }

  CudaHandle handle = nullptr;

 private:
  const CudaContext& context_;
};

CudaHandle handle_of(const DeviceEvent& event) {
  return static_cast<const CudaEvent&>(event).handle;
}

class CudaMemory final : public DeviceMemory {
 public:
  CudaMemory(int device, std::vector<std::string> nvrtc_folders)
      : context_(device), nvrtc_folders_(std::move(nvrtc_folders)) {}
  ~CudaMemory() override {
    for (const CudaHandle stream : streams_) driver().stream_destroy(stream);
  }

  std::string name() const override { return "cuda:" + std::to_string(context_.ordinal()); }

  std::byte* allocate_host(size_t bytes) override {
    const CudaContext::Current current(context_);
    void* memory = nullptr;
    driver().check(driver().host_allocate(&memory, bytes, kPortable),
                   "allocating page-locked memory");
    return static_cast<std::byte*>(memory);
  }
  void free_host(std::byte* memory) noexcept override { driver().host_free(memory); }

  // Of the highest priority: what it carries is short, and others wait for it.
  DeviceQueue make_queue() override {
    const CudaContext::Current current(context_);
    int least = 0, greatest = 0;
    driver().check(driver().context_priorities(&least, &greatest), "asking for priorities");
    CudaHandle stream = nullptr;
    driver().check(driver().stream_create(&stream, kNonBlocking, greatest), "making a stream");
    const std::lock_guard lock(mutex_);
    streams_.push_back(stream);
    return stream;
  }

  void copy_to_host(std::byte* to, const void* from, size_t bytes, DeviceQueue queue) override {
    const CudaContext::Current current(context_);
    driver().check(driver().copy_to_host(to, address(from), bytes, queue), "copying to the host");
  }
  void copy_from_host(void* to, const std::byte* from, size_t bytes, DeviceQueue queue) override {
    const CudaContext::Current current(context_);
    driver().check(driver().copy_to_device(address(to), from, bytes, queue),
                   "copying to the device");
  }

  std::unique_ptr<DeviceEvent> make_event() override {
    return std::make_unique<CudaEvent>(context_);
  }
  void record(DeviceEvent& event, DeviceQueue queue) override {
    const CudaContext::Current current(context_);
    driver().check(driver().event_record(handle_of(event), queue), "recording an event");
  }
  void wait_for(DeviceQueue queue, const DeviceEvent& event) override {
    const CudaContext::Current current(context_);
    driver().check(driver().stream_wait_event(queue, handle_of(event), 0), "waiting for an event");
  }
  bool reached(const DeviceEvent& event) override {
    const CudaContext::Current current(context_);
    const CudaCode code = driver().event_query(handle_of(event));
    if (code != kCudaNotReady) driver().check(code, "looking at an event");
    return code == 0;
  }

  void* allocate(size_t bytes) override {
    const CudaContext::Current current(context_);
    CudaAddress memory = 0;
    driver().check(driver().allocate(&memory, bytes), "allocating memory of the device");
    return reinterpret_cast<void*>(memory);
  }
  void free(void* memory) noexcept override {
    const CudaContext::Current current(context_);
    driver().free(address(memory));
  }

  std::unique_ptr<Launcher> make_launcher(DeviceQueue queue, std::string& why) override {
    try {
      const Nvrtc nvrtc(nvrtc_folders_);
    } catch (const Error& error) {
      why = error.what();
      return nullptr;
    }
    return std::make_unique<CudaLauncher>(context_, queue, nvrtc_folders_);
  }

 private:
  const CudaDriver& driver() const noexcept { return context_.driver(); }

  CudaContext context_;
  std::vector<std::string> nvrtc_folders_;
  std::mutex mutex_;
  std::vector<CudaHandle> streams_;
};

}  // namespace
}  // namespace thinwire::device

namespace thinwire {

std::shared_ptr<DeviceMemory> make_cuda_memory(int device,
                                               std::vector<std::string> nvrtc_folders) {
  return std::make_shared<device::CudaMemory>(device, std::move(nvrtc_folders));
}

}  // namespace thinwire
