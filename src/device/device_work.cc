// Scratch memory in blocks that grow to what was needed once; copies through page-locked memory.
// SPDX-License-Identifier: Apache-2.0
#include "device/device_work.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <mutex>
#include <thread>
#include <utility>

#include "device/memory_kernels.h"
#include "device/work_grid.h"
#include "thinwire/status.h"

namespace thinwire {

void* DeviceMemory::allocate(size_t /*bytes*/) {
  throw Error(ErrorCode::kUnsupported, "device " + name() + ": has no memory for kernels");
}

std::unique_ptr<device::Launcher> DeviceMemory::make_launcher(DeviceQueue /*queue*/,
                                                              std::string& why) {
  why = name() + " runs no kernels";
  return nullptr;
}

}  // namespace thinwire

namespace thinwire::device {
namespace {

constexpr size_t kAlign = 256;  // bytes
constexpr size_t kLeastBlock = size_t{1} << 16;
constexpr size_t kLargestPage = size_t{1} << 24;  // larger copies go in pieces

// Of a device that did not end in time once.
constexpr std::chrono::milliseconds kLittlePatience = std::chrono::seconds(1);

size_t aligned_size(size_t bytes) { return (bytes + kAlign - 1) / kAlign * kAlign; }

// What a stuck device may still use. It is never destroyed.
void keep_for_good(std::unique_ptr<Launcher> launcher) {
  static std::mutex mutex;
  static auto* const kept = new std::vector<std::unique_ptr<Launcher>>;
  const std::lock_guard lock(mutex);
  kept->push_back(std::move(launcher));
}

uint64_t next_number() {
  static std::atomic<uint64_t> last = 0;
  return ++last;
}

}  // namespace

DeviceWork::DeviceWork(std::shared_ptr<DeviceMemory> device)
    : number_(next_number()), device_(std::move(device)) {
  queue_ = device_->make_queue();
  try {
    std::string why;
    launcher_ = device_->make_launcher(queue_, why);
    if (launcher_ == nullptr) throw Error(ErrorCode::kUnsupported, "device: " + why);
    done_ = device_->make_event();
  } catch (...) {
    device_->free_queue(queue_);
    throw;
  }
}

// What a stuck device may still use stays: kernels too, which belong to the launcher.
DeviceWork::~DeviceWork() {
  if (settle()) {
    for (const Block& block : blocks_) device_->free(block.memory);
    for (const Page& page : {sent_, fetched_})
      if (page.memory != nullptr) device_->free_host(page.memory);
    launcher_.reset();
  } else {
    keep_for_good(std::move(launcher_));
  }
  device_->free_queue(queue_);
}

void* DeviceWork::allocate(size_t bytes) {
  void* const memory = device_->allocate(bytes);
  if (memory == nullptr)
    throw Error(ErrorCode::kIo,
                "device " + device_->name() + ": no room for " + std::to_string(bytes) + " bytes");
  return memory;
}

void DeviceWork::begin() {
  used_ = 0;
  if (blocks_.size() < 2) return;
  size_t bytes = 0;
  for (const Block& block : blocks_) {
    bytes += block.bytes;
    device_->free(block.memory);
  }
  blocks_.clear();
  blocks_.push_back({allocate(bytes), bytes});
}

void* DeviceWork::take(size_t bytes) {
  bytes = aligned_size(bytes);
  if (blocks_.empty() || used_ + bytes > blocks_.back().bytes) {
    const size_t size = std::max(bytes, blocks_.empty() ? kLeastBlock : blocks_.back().bytes);
    blocks_.push_back({allocate(size), size});
    used_ = 0;
  }
  used_ += bytes;
  return static_cast<std::byte*>(blocks_.back().memory) + (used_ - bytes);
}

std::byte* DeviceWork::page(Page& of, size_t bytes) {
  if (of.bytes < bytes) {
    await();
    if (const Page old = std::exchange(of, Page{}); old.memory != nullptr)
      device_->free_host(old.memory);
    of = {device_->allocate_host(bytes), bytes};
  }
  return of.memory;
}

void DeviceWork::send(void* to, std::span<const std::byte> from) {
  auto* there = static_cast<std::byte*>(to);
  while (!from.empty()) {
    const size_t size = std::min(from.size(), kLargestPage);
    if (sent_bytes_ + size > sent_.bytes) {
      await();
      page(sent_, std::max(size, kLeastBlock));
    }
    std::byte* const at = sent_.memory + sent_bytes_;
    std::memcpy(at, from.data(), size);
    sent_bytes_ += size;
    device_->copy_from_host(there, at, size, queue_);
    bytes_sent_ += size;
    there += size;
    from = from.subspan(size);
  }
}

void DeviceWork::fetch(std::span<std::byte> to, const void* from) {
  const auto* there = static_cast<const std::byte*>(from);
  do {
    const size_t size = std::min(to.size(), kLargestPage);
    std::byte* const at = page(fetched_, std::max(size, kLeastBlock));
    if (size > 0) device_->copy_to_host(at, there, size, queue_);
    bytes_fetched_ += size;
    await();
    if (size > 0) std::memcpy(to.data(), at, size);
    there += size;
    to = to.subspan(size);
  } while (!to.empty());
}

void DeviceWork::await() {
  device_->record(*done_, queue_);
  const auto patience = given_up_ ? std::min(patience_, kLittlePatience) : patience_;
  const auto until = std::chrono::steady_clock::now() + patience;
  for (size_t looks = 0; !device_->reached(*done_); ++looks) {
    if (std::chrono::steady_clock::now() > until) {
      given_up_ = true;
      throw Error(ErrorCode::kTimeout, "device " + device_->name() +
                                           ": kernels have not ended within " +
                                           std::to_string(patience.count()) + " ms");
    }
    // Kernels of small tensors take a few microseconds.
    if (looks > 100)
      std::this_thread::sleep_for(std::chrono::microseconds(20));
    else
      std::this_thread::yield();
  }
  given_up_ = false;
  sent_bytes_ = 0;
}

bool DeviceWork::settle() noexcept {
  try {
    await();
  } catch (const Error& error) {
    return error.code() != ErrorCode::kTimeout;  // a device that failed does nothing any more
  } catch (...) {
  }
  return true;
}

DeviceFloats::DeviceFloats(SharedWork work, size_t count) : work_(std::move(work)) {
  if (count == 0) return;
  values_ = {static_cast<float*>(work_->allocate(4 * count)), count};
  try {
    fill(*work_, values_, 0.0f);
  } catch (...) {  // nothing uses them yet
    work_->memory()->free(values_.data());
    throw;
  }
}

DeviceFloats::~DeviceFloats() {
  if (!values_.empty() && work_->settle()) work_->memory()->free(values_.data());
}

void clear(DeviceWork& work, uint32_t* words, size_t count) {
  launch(work.launcher(), "selection/fill_words", work_grid(count), words, uint64_t{count},
         uint32_t{0});
}

void fill(DeviceWork& work, std::span<float> values, float value) {
  launch(work.launcher(), "selection/fill_words", work_grid(values.size()), values.data(),
         uint64_t{values.size()}, std::bit_cast<uint32_t>(value));
}

void copy(DeviceWork& work, std::span<const float> from, std::span<float> to) {
  launch(work.launcher(), "selection/copy_values", work_grid(from.size()), from.data(),
         uint64_t{from.size()}, to.data());
}

void scale(DeviceWork& work, std::span<float> values, float factor) {
  launch(work.launcher(), "memories/scale", work_grid(values.size()), values.data(),
         uint64_t{values.size()}, factor);
}

Moments measure(DeviceWork& work, std::span<const float> values) {
  auto* const entries = work.room<ChunkMoments>(moment_entries(values.size()));
  moments(work.launcher(), values.data(), values.size(), entries);
  return moments_of(work.fetch(entries));
}

}  // namespace thinwire::device
