// DeviceMemory by CUDA's driver.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "device/cuda/cuda_launcher.h"
#include "device/cuda/cuda_modules.h"
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
  explicit CudaEvent(std::shared_ptr<const CudaContext> context) : context_(std::move(context)) {
    const CudaContext::Current current(*context_);
    context_->check(context_->driver().event_create(&handle, kDisableTiming), "making an event");
  }
  ~CudaEvent() override {
    context_->release([this](const CudaDriver& driver) { driver.event_destroy(handle); });
  }

  CudaHandle handle = nullptr;

 private:
  std::shared_ptr<const CudaContext> context_;
};

CudaHandle handle_of(const DeviceEvent& event) {
  return static_cast<const CudaEvent&>(event).handle;
}

class CudaMemory final : public DeviceMemory {
 public:
  explicit CudaMemory(int device)
      : context_(std::make_shared<const CudaContext>(device)),
        modules_(std::make_shared<CudaModules>(context_)) {}
  ~CudaMemory() override {
    context_->release([this](const CudaDriver& driver) {
      for (const CudaHandle stream : streams_) driver.stream_destroy(stream);
    });
  }

  void look_for_nvrtc_in(const std::vector<std::string>& folders) { modules_->look_in(folders); }

  std::string name() const override { return context_->name(); }

  std::byte* allocate_host(size_t bytes) override {
    const CudaContext::Current current(*context_);
    void* memory = nullptr;
    check(driver().host_allocate(&memory, bytes, kPortable),
          "allocating " + std::to_string(bytes) + " bytes of page-locked memory");
    return static_cast<std::byte*>(memory);
  }
  void free_host(std::byte* memory) noexcept override {
    context_->release([memory](const CudaDriver& driver) { driver.host_free(memory); });
  }

  // Of the highest priority: what it carries is short, and others wait for it.
  DeviceQueue make_queue() override {
    const CudaContext::Current current(*context_);
    int least = 0, greatest = 0;
    check(driver().context_priorities(&least, &greatest), "asking for priorities");
    CudaHandle stream = nullptr;
    check(driver().stream_create(&stream, kNonBlocking, greatest), "making a stream");
    const std::lock_guard lock(mutex_);
    streams_.push_back(stream);
    return stream;
  }
  void free_queue(DeviceQueue queue) noexcept override {
    const std::lock_guard lock(mutex_);
    if (std::erase(streams_, queue) > 0)
      context_->release([queue](const CudaDriver& driver) { driver.stream_destroy(queue); });
  }

  void copy_to_host(std::byte* to, const void* from, size_t bytes, DeviceQueue queue) override {
    const CudaContext::Current current(*context_);
    check(driver().copy_to_host(to, address(from), bytes, queue), "copying to the host");
  }
  void copy_from_host(void* to, const std::byte* from, size_t bytes, DeviceQueue queue) override {
    const CudaContext::Current current(*context_);
    check(driver().copy_to_device(address(to), from, bytes, queue), "copying from the host");
  }

  std::unique_ptr<DeviceEvent> make_event() override {
    return std::make_unique<CudaEvent>(context_);
  }
  void record(DeviceEvent& event, DeviceQueue queue) override {
    const CudaContext::Current current(*context_);
    check(driver().event_record(handle_of(event), queue), "recording an event");
  }
  void wait_for(DeviceQueue queue, const DeviceEvent& event) override {
    const CudaContext::Current current(*context_);
    check(driver().stream_wait_event(queue, handle_of(event), 0), "waiting for an event");
  }
  bool reached(const DeviceEvent& event) override {
    const CudaContext::Current current(*context_);
    const CudaCode code = driver().event_query(handle_of(event));
    if (code != kCudaNotReady) check(code, "looking at an event");
    return code == 0;
  }

  void* allocate(size_t bytes) override {
    const CudaContext::Current current(*context_);
    CudaAddress memory = 0;
    const CudaCode code = driver().allocate(&memory, bytes);
    if (code == kCudaOutOfMemory) return nullptr;
    check(code, "allocating " + std::to_string(bytes) + " bytes");
    return reinterpret_cast<void*>(memory);
  }
  void free(void* memory) noexcept override {
    context_->release([memory](const CudaDriver& driver) { driver.free(address(memory)); });
  }

  std::unique_ptr<Launcher> make_launcher(DeviceQueue queue, std::string& why) override {
    try {
      const Nvrtc nvrtc(modules_->nvrtc_folders());
    } catch (const Error& error) {
      why = error.what();
      return nullptr;
    }
    return std::make_unique<CudaLauncher>(modules_, queue);
  }

 private:
  const CudaDriver& driver() const noexcept { return context_->driver(); }
  void check(CudaCode code, std::string_view what) const { context_->check(code, what); }

  const std::shared_ptr<const CudaContext> context_;
  const std::shared_ptr<CudaModules> modules_;
  std::mutex mutex_;
  std::vector<CudaHandle> streams_;
};

}  // namespace
}  // namespace thinwire::device

namespace thinwire {

// One for all that use the device at the same time: they share its kernels. Never destroyed, as the
// driver is not.
std::shared_ptr<DeviceMemory> make_cuda_memory(int device, std::vector<std::string> nvrtc_folders) {
  static auto& mutex = *new std::mutex;
  static auto& used = *new std::map<int, std::weak_ptr<device::CudaMemory>>;
  const std::lock_guard lock(mutex);
  std::shared_ptr<device::CudaMemory> memory = used[device].lock();
  if (memory == nullptr) used[device] = memory = std::make_shared<device::CudaMemory>(device);
  memory->look_for_nvrtc_in(nvrtc_folders);
  return memory;
}

}  // namespace thinwire
