// DeviceWork: one thread's work on a device: kernels and copies in a queue, and scratch memory for
// them.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/bytes.h"
#include "device/launcher.h"
#include "thinwire/device_memory.h"
#include "thinwire/moments.h"

namespace thinwire {
namespace device {
class DeviceWork;
}
using SharedWork = std::shared_ptr<device::DeviceWork>;
}  // namespace thinwire

namespace thinwire::device {

// What is asked for happens in its order. fetch and await return once all has happened that was
// asked for before, send once there is room in page-locked memory, 16 MiB at most, the others at
// once. All throw the device's errors. For one thread.
class DeviceWork {
 public:
  // Throws Error(kUnsupported), which says why, if the device runs no kernels.
  explicit DeviceWork(std::shared_ptr<DeviceMemory> device);
  ~DeviceWork();
  DeviceWork(const DeviceWork&) = delete;
  DeviceWork& operator=(const DeviceWork&) = delete;

  Launcher& launcher() noexcept { return *launcher_; }
  DeviceQueue queue() const noexcept { return queue_; }
  const std::shared_ptr<DeviceMemory>& memory() const noexcept { return device_; }

  // Different for every object of this process.
  uint64_t number() const noexcept { return number_; }

  // How long fetch and await wait at most. Then they throw Error(kTimeout), which names the device,
  // and from then on after a second, until the device has caught up.
  void set_patience(std::chrono::milliseconds patience) noexcept { patience_ = patience; }

  // Memory of the device. Throws Error(kIo), which says how much was asked for, if there is no
  // room.
  void* allocate(size_t bytes);

  // All scratch memory is free again. REQUIRES: nothing asked for is still to happen that uses it.
  void begin();

  // Room for so many values of a type, never null, good until the next begin.
  template <class T>
  T* room(size_t count) {
    return static_cast<T*>(take(std::max<size_t>(count, 1) * sizeof(T)));
  }

  void send(void* to, std::span<const std::byte> from);  // which may change afterwards
  void fetch(std::span<std::byte> to, const void* from);
  template <class T>
  T fetch(const T* from) {
    T value;
    fetch(writable_byte_view(value), from);
    return value;
  }
  void await();

  // Of all copies so far.
  uint64_t bytes_sent() const noexcept { return bytes_sent_; }
  uint64_t bytes_fetched() const noexcept { return bytes_fetched_; }

  // As await, for ends: whether memory may be freed. It may not if the device is stuck, which may
  // still use it.
  bool settle() noexcept;

 private:
  void* take(size_t bytes);

  const uint64_t number_;
  std::shared_ptr<DeviceMemory> device_;
  DeviceQueue queue_ = nullptr;
  std::unique_ptr<Launcher> launcher_;
  std::unique_ptr<DeviceEvent> done_;
  std::chrono::milliseconds patience_ = std::chrono::minutes(1);
  bool given_up_ = false;
  uint64_t bytes_sent_ = 0, bytes_fetched_ = 0;

  struct Block {
    void* memory;
    size_t bytes;
  };
  std::vector<Block> blocks_;  // of the device; one, unless more was needed since begin
  size_t used_ = 0;            // bytes of the last one
  struct Page {
    std::byte* memory = nullptr;  // page-locked
    size_t bytes = 0;
  };
  std::byte* page(Page& of, size_t bytes);
  Page sent_, fetched_;
  size_t sent_bytes_ = 0;  // that a copy may still read
};

// Floats that stay in the device's memory between steps, zeros at first.
class DeviceFloats {
 public:
  DeviceFloats(SharedWork work, size_t count);
  ~DeviceFloats();  // once nothing uses them; a device that is stuck keeps its memory
  DeviceFloats(const DeviceFloats&) = delete;
  DeviceFloats& operator=(const DeviceFloats&) = delete;

  std::span<float> values() const noexcept { return values_; }

 private:
  SharedWork work_;
  std::span<float> values_;
};

// Passes that are no memory's and no codec's.
void clear(DeviceWork& work, uint32_t* words, size_t count);
void fill(DeviceWork& work, std::span<float> values, float value);
void copy(DeviceWork& work, std::span<const float> from, std::span<float> to);
void scale(DeviceWork& work, std::span<float> values, float factor);

// kernel::moments; takes room.
Moments measure(DeviceWork& work, std::span<const float> values);

}  // namespace thinwire::device
