// A device for tests, whose queues run late and in any order that events allow, kernels included.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <new>
#include <random>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "device/launcher.h"
#include "device/testing/host_kernels.h"
#include "thinwire/device_memory.h"
#include "thinwire/status.h"

namespace thinwire::testing {

// ThreadSanitizer does not follow the jumps between stacks by which kernels run on the processor.
#ifdef __SANITIZE_THREAD__
inline constexpr bool kKernelsRun = false;
#else
inline constexpr bool kKernelsRun = true;
#endif

// A thread takes the first operation of a queue that may go on, drawn at random, so that whoever
// does not wait for an event finds old bits sooner or later. Addresses of its memory are such that
// the processor cannot follow them.
class FakeDevice final : public DeviceMemory {
 public:
  // Kernels run on the processor, as texts; without `kernels` it has none.
  explicit FakeDevice(uint32_t seed = 1, bool kernels = kKernelsRun)
      : kernels_(kernels), random_(seed), thread_([this] { run(); }) {}
  ~FakeDevice() override {
    {
      const std::lock_guard lock(mutex_);
      stopped_ = true;
    }
    work_.notify_all();
    thread_.join();
    for (std::byte* const memory : host_memory_)
      delete[] memory;  // that owners left to a stuck device
    for (void* const memory : memory_) ::operator delete(memory, std::align_val_t(256));
  }

  std::string name() const override { return "fake:0"; }

  std::byte* allocate_host(size_t bytes) override {
    if (refuses_host_memory) throw Error(ErrorCode::kIo, "device fake:0: no page-locked memory");
    ++allocations;
    const std::lock_guard lock(mutex_);
    largest_page = std::max(largest_page, bytes);
    return *host_memory_.insert(new std::byte[bytes]).first;
  }
  void free_host(std::byte* memory) noexcept override {
    --allocations;
    const std::lock_guard lock(mutex_);
    host_memory_.erase(memory);
    delete[] memory;
  }
  std::atomic<int> allocations = 0;  // of host memory that are there
  std::atomic<bool> refuses_host_memory = false;
  size_t largest_page = 0;  // of host memory, in bytes

  DeviceQueue make_queue() override {
    const std::lock_guard lock(mutex_);
    return queues_.emplace_back(std::make_unique<Queue>()).get();
  }
  void free_queue(DeviceQueue queue) noexcept override {
    const std::lock_guard lock(mutex_);
    static_cast<Queue*>(queue)->freed = true;
    work_.notify_all();
  }
  // That are there, and not freed.
  size_t queues() {
    const std::lock_guard lock(mutex_);
    return static_cast<size_t>(std::count_if(queues_.begin(), queues_.end(),
                                             [](const auto& queue) { return !queue->freed; }));
  }

  std::atomic<size_t> lost_operations = 0;  // that were put into queues after these were freed

  // Memory of the device, under an address that faults on the processor.
  static void* hide(void* memory) { return turn(memory); }

  void* allocate(size_t bytes) override {
    if (!kernels_) return DeviceMemory::allocate(bytes);
    if (bytes > room) return nullptr;
    ++device_allocations;
    void* const memory = ::operator new(bytes, std::align_val_t(256));
    std::memset(memory, 0xEE, bytes);
    const std::lock_guard lock(mutex_);
    memory_.insert(memory);
    return turn(memory);
  }
  void free(void* memory) noexcept override {
    if (memory == nullptr) return;
    --device_allocations;
    const std::lock_guard lock(mutex_);
    memory_.erase(turn(memory));
    ::operator delete(turn(memory), std::align_val_t(256));
  }
  std::atomic<int> device_allocations = 0;
  std::atomic<size_t> room = SIZE_MAX;  // bytes of an allocation at most

  std::unique_ptr<device::Launcher> make_launcher(DeviceQueue queue, std::string& why) override {
    if (!kernels_) return DeviceMemory::make_launcher(queue, why);
    return std::make_unique<QueueLauncher>(*this, queue);
  }
  std::atomic<size_t> launches = 0;
  std::atomic<size_t> stops_at =
      SIZE_MAX;              // of launches: then nothing happens any more, until it goes on
  std::string refused_text;  // no kernel of this text compiles

  // Of all copies so far.
  std::atomic<size_t> bytes_to_host = 0, bytes_from_host = 0;
  bool refuses_copies = false;  // to the host

  void copy_to_host(std::byte* to, const void* from, size_t bytes, DeviceQueue queue) override {
    if (refuses_copies) throw Error(ErrorCode::kIo, "device fake:0: no copy to the host");
    bytes_to_host += bytes;
    const void* const memory = turn(const_cast<void*>(from));
    put(queue, {.run = [=] { std::memcpy(to, memory, bytes); }});
  }
  void copy_from_host(void* to, const std::byte* from, size_t bytes, DeviceQueue queue) override {
    bytes_from_host += bytes;
    void* const memory = turn(to);
    put(queue, {.run = [=] { std::memcpy(memory, from, bytes); }});
  }
  // A computation of the caller's.
  void compute(DeviceQueue queue, std::function<void()> work) {
    put(queue, {.run = std::move(work)});
  }
  // A computation that lasts until `over` says so.
  void compute_until(DeviceQueue queue, std::function<bool()> over) {
    put(queue, {.over = std::move(over)});
  }

  std::unique_ptr<DeviceEvent> make_event() override { return std::make_unique<Event>(); }
  void record(DeviceEvent& event, DeviceQueue queue) override {
    const auto& state = static_cast<Event&>(event).state;
    const std::lock_guard lock(mutex_);
    append(queue, {.event = state, .ticket = ++state->asked, .records = true});
  }
  void wait_for(DeviceQueue queue, const DeviceEvent& event) override {
    const auto& state = static_cast<const Event&>(event).state;
    const std::lock_guard lock(mutex_);
    append(queue, {.event = state, .ticket = state->asked});
  }
  bool reached(const DeviceEvent& event) override {
    const auto& state = static_cast<const Event&>(event).state;
    const std::lock_guard lock(mutex_);
    if (failed_) throw Error(ErrorCode::kIo, "device fake:0: it fell off the bus");
    return state->done >= state->asked;
  }

  // Returns when all that the queue holds has happened; other queues may go on.
  void finish(DeviceQueue queue) {
    const auto end = make_event();
    record(*end, queue);
    const auto& state = static_cast<Event&>(*end).state;
    std::unique_lock lock(mutex_);
    done_.wait(lock, [&] { return state->done >= state->asked; });
  }

  // From now on nothing happens any more, until it goes on; or reached throws.
  void stop_now() {
    const std::lock_guard lock(mutex_);
    stuck_ = true;
  }
  void go_on() {
    const std::lock_guard lock(mutex_);
    stuck_ = false;
    work_.notify_all();
  }
  void fail_now() {
    const std::lock_guard lock(mutex_);
    failed_ = true;
  }

 private:
  struct State {
    uint64_t asked = 0, done = 0;  // of the recordings of an event
  };
  struct Event final : DeviceEvent {
    std::shared_ptr<State> state = std::make_shared<State>();
  };
  struct Operation {
    std::function<void()> run = {};
    std::function<bool()> over = {};  // nothing behind it happens before
    std::shared_ptr<State> event = {};
    uint64_t ticket = 0;
    bool records = false;
  };
  struct Queue : std::deque<Operation> {
    bool freed = false;
  };

  // Kernels in their turn, with copies of their arguments; forwards and backwards by turns.
  class QueueLauncher final : public device::Launcher {
   public:
    QueueLauncher(FakeDevice& device, DeviceQueue queue) : device_(device), queue_(queue) {}

    void launch(std::string_view kernel, device::Grid grid,
                std::span<const device::Argument> arguments) override {
      if (!device_.refused_text.empty() && kernel.starts_with(device_.refused_text + "/"))
        throw Error(ErrorCode::kContract, "device: kernel text " + device_.refused_text + ".cu");
      const size_t before = device_.launches++;
      const bool backward = before % 2 != 0;
      if (before == device_.stops_at) device_.stop_now();
      std::vector<std::vector<std::byte>> values;
      for (const device::Argument& argument : arguments) {
        const auto* const from = static_cast<const std::byte*>(argument.data);
        values.emplace_back(from, from + argument.size);
      }
      device_.put(queue_, {.run = [=, name = std::string(kernel)] {
                    std::vector<device::Argument> given;
                    for (const auto& value : values) given.push_back({value.data(), value.size()});
                    device::HostLauncher(backward, turn).launch(name, grid, given);
                  }});
    }

   private:
    FakeDevice& device_;
    DeviceQueue queue_;
  };

  static void* turn(void* memory) {
    if (memory == nullptr) return nullptr;

    return reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(memory) ^ (uintptr_t{0x5A} << 56));
  }

  void put(DeviceQueue queue, Operation operation) {
    const std::lock_guard lock(mutex_);
    append(queue, std::move(operation));
  }
  void append(DeviceQueue queue, Operation operation) {
    const bool is_there = std::any_of(queues_.begin(), queues_.end(), [&](const auto& one) {
      return one.get() == queue && !one->freed;
    });
    if (!is_there) {
      ++lost_operations;
      return;
    }
    static_cast<Queue*>(queue)->push_back(std::move(operation));
    work_.notify_all();
  }

  void run() {
    std::unique_lock lock(mutex_);
    while (!stopped_) {
      std::erase_if(queues_, [](const auto& queue) { return queue->freed && queue->empty(); });
      std::vector<Queue*> free;
      bool computing = false;
      for (const auto& queue : queues_) {
        if (queue->empty()) continue;
        const Operation& first = queue->front();
        if (first.over && !first.over()) {
          computing = true;
          continue;
        }
        if (!first.event || first.records || first.event->done >= first.ticket)
          free.push_back(queue.get());
      }
      if (free.empty() || stuck_) {
        if (computing)
          work_.wait_for(lock, std::chrono::microseconds(100));
        else
          work_.wait(lock);
        continue;
      }
      Queue& queue = *free[random_() % free.size()];
      const Operation operation = std::move(queue.front());
      queue.pop_front();
      if (operation.records) operation.event->done = operation.ticket;
      const bool late = random_() % 16 == 0;
      lock.unlock();
      if (late) std::this_thread::sleep_for(std::chrono::microseconds(50));
      if (operation.run) operation.run();
      lock.lock();
      done_.notify_all();
    }
  }

  const bool kernels_;
  std::mutex mutex_;
  std::condition_variable work_, done_;
  std::vector<std::unique_ptr<Queue>> queues_;
  std::set<std::byte*> host_memory_;
  std::set<void*> memory_;
  std::minstd_rand random_;
  bool stopped_ = false, stuck_ = false, failed_ = false;
  std::thread thread_;
};

}  // namespace thinwire::testing
