// The memory of a GPU, as far as an exchange needs it: copies to the processor and back, and room
// for kernels.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace thinwire {
namespace device {
class Launcher;
}

// A queue of a device: what is put into it happens in order. Queues wait for each other by events
// alone. CUDA calls a queue a stream and its handle CUstream.
using DeviceQueue = void*;

// A place in a queue.
class DeviceEvent {
 public:
  virtual ~DeviceEvent() = default;
};

// Functions return at once; what they ask for happens later, in the order of its queue. They throw
// Error(kIo), which names the device, if the device reports an error. May be used by several
// threads at once.
class DeviceMemory {
 public:
  virtual ~DeviceMemory() = default;

  // "cuda:0"
  virtual std::string name() const = 0;

  // Page-locked memory of the processor, from which and to which copies run beside everything else.
  virtual std::byte* allocate_host(size_t bytes) = 0;
  virtual void free_host(std::byte* memory) noexcept = 0;

  // A queue that waits for no other unless told. It lives until free_queue, or as long as this
  // object. What a freed queue still holds happens all the same; nothing may be put into it any
  // more.
  virtual DeviceQueue make_queue() = 0;
  virtual void free_queue(DeviceQueue /*queue*/) noexcept {}

  virtual void copy_to_host(std::byte* to, const void* from, size_t bytes, DeviceQueue queue) = 0;
  virtual void copy_from_host(void* to, const std::byte* from, size_t bytes, DeviceQueue queue) = 0;

  // Moves the event to the end of the queue. An event that was never recorded counts as reached.
  virtual std::unique_ptr<DeviceEvent> make_event() = 0;
  virtual void record(DeviceEvent& event, DeviceQueue queue) = 0;

  // What is put into the queue from now on waits until the event, where it is now, is reached.
  virtual void wait_for(DeviceQueue queue, const DeviceEvent& event) = 0;

  virtual bool reached(const DeviceEvent& event) = 0;

  // Memory of the device, at a multiple of 256 bytes; null where there is no room. A device that
  // runs no kernels has none to give. What still works on memory must have ended when it is freed.
  virtual void* allocate(size_t bytes);
  virtual void free(void* /*memory*/) noexcept {}

  // Runs thinwire's kernels in a queue; null where this device runs none, and `why` then says what
  // is missing.
  virtual std::unique_ptr<device::Launcher> make_launcher(DeviceQueue queue, std::string& why);
};

// The memory of CUDA device number `device`, by the driver's interface (libcuda.so.1), which is
// looked for when this is called. All who have it at the same time share one object, and the
// kernels that it has loaded. Queues are streams of the device's primary context, which PyTorch
// uses too. Throws Error(kUnsupported), which says what is missing. Kernels need NVRTC: libnvrtc.so
// of these folders, or else of the loader's path.
std::shared_ptr<DeviceMemory> make_cuda_memory(int device = 0,
                                               std::vector<std::string> nvrtc_folders = {});

}  // namespace thinwire
