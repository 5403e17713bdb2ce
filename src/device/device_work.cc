// Scratch memory in blocks that grow to what was needed once; copies through page-locked memory.
// SPDX-License-Identifier: Apache-2.0
#include "device/device_work.h"

#include <algorithm>
#include <bit>
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

size_t aligned_size(size_t bytes) { return (bytes + kAlign - 1) / kAlign * kAlign; }

}  // namespace

DeviceWork::DeviceWork(std::shared_ptr<DeviceMemory> device) : device_(std::move(device)) {
  queue_ = device_->make_queue();
  std::string why;
  launcher_ = device_->make_launcher(queue_, why);
  if (launcher_ == nullptr) throw Error(ErrorCode::kUnsupported, "device: " + why);
  done_ = device_->make_event();
}

// A device that is stuck, or failed, is given up.
DeviceWork::~DeviceWork() {
  try {
    await();
  } catch (...) {
  }
  for (const Block& block : blocks_) device_->free(block.memory);
  for (const Page& page : {sent_, fetched_})
    if (page.memory != nullptr) device_->free_host(page.memory);
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
  blocks_.push_back({device_->allocate(bytes), bytes});
}

void* DeviceWork::take(size_t bytes) {
  bytes = aligned_size(bytes);
  if (blocks_.empty() || used_ + bytes > blocks_.back().bytes) {
    const size_t size = std::max(bytes, blocks_.empty() ? kLeastBlock : blocks_.back().bytes);
    blocks_.push_back({device_->allocate(size), size});
    used_ = 0;
  }
  used_ += bytes;
  return static_cast<std::byte*>(blocks_.back().memory) + (used_ - bytes);
}

std::byte* DeviceWork::page(Page& of, size_t bytes) {
  if (of.bytes < bytes) {
    await();
    if (of.memory != nullptr) device_->free_host(std::exchange(of.memory, nullptr));
    of = {device_->allocate_host(bytes), bytes};
  }
  return of.memory;
}

void DeviceWork::send(void* to, std::span<const std::byte> from) {
  if (from.empty()) return;
  if (sent_bytes_ + from.size() > sent_.bytes) {
    await();
    page(sent_, std::max(from.size(), kLeastBlock));
  }
  std::byte* const at = sent_.memory + sent_bytes_;
  std::memcpy(at, from.data(), from.size());
  sent_bytes_ += from.size();
  device_->copy_from_host(to, at, from.size(), queue_);
}

void DeviceWork::fetch(std::span<std::byte> to, const void* from) {
  std::byte* const at = page(fetched_, std::max(to.size(), kLeastBlock));
  if (!to.empty()) device_->copy_to_host(at, from, to.size(), queue_);
  await();
  if (!to.empty()) std::memcpy(to.data(), at, to.size());
}

void DeviceWork::await() {
  device_->record(*done_, queue_);
  const auto until =
      std::chrono::steady_clock::now() + (given_up_ ? std::chrono::milliseconds(0) : patience_);
  for (size_t looks = 0; !device_->reached(*done_); ++looks) {
    if (std::chrono::steady_clock::now() > until) {
      given_up_ = true;
      throw Error(ErrorCode::kTimeout, "device " + device_->name() +
                                           ": kernels have not ended within " +
                                           std::to_string(patience_.count()) + " ms");
    }
    // Kernels of small tensors take a few microseconds.
    if (looks > 100)
      std::this_thread::sleep_for(std::chrono::microseconds(20));
    else
      std::this_thread::yield();
  }
  sent_bytes_ = 0;
}

DeviceFloats::DeviceFloats(SharedWork work, size_t count) : work_(std::move(work)) {
  if (count == 0) return;
  values_ = {static_cast<float*>(work_->memory()->allocate(4 * count)), count};
  fill(*work_, values_, 0.0f);
}

DeviceFloats::~DeviceFloats() {
  if (values_.empty()) return;
  try {
    work_->await();
  } catch (...) {
    // The device does nothing any more.
  }
  work_->memory()->free(values_.data());
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
