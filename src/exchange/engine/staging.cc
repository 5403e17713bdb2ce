// Queues copies and orders them by events; nothing here waits for a device but the destructor.
// SPDX-License-Identifier: Apache-2.0
#include "exchange/engine/staging.h"

#include <algorithm>
#include <chrono>
#include <thread>

namespace thinwire {
namespace {

constexpr size_t kAlign = 256;  // bytes

size_t bytes_of(const TensorView& view) {
  return view.count * (view.dtype == DType::kFloat32 ? 4 : 2);
}

}  // namespace

Staging::Staging(std::shared_ptr<DeviceMemory> device, const std::vector<TensorSpec>& tensors)
    : device_(std::move(device)), places_(tensors.size()) {
  for (size_t i = 0; i < tensors.size(); ++i) {
    places_[i].offset = bytes_;
    bytes_ += (4 * tensors[i].count() + kAlign - 1) / kAlign * kAlign;
  }
  bytes_ = std::max(bytes_, kAlign);
}

Staging::~Staging() {
  if (host_ != nullptr && wait_for_copies()) device_->free_host(host_);
  for (const DeviceQueue queue : {fetches_, returns_})
    if (queue != nullptr) device_->free_queue(queue);
}

// Whether no copy uses the memory any more.
bool Staging::wait_for_copies() noexcept {
  try {
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    for (const DeviceQueue queue : {fetches_, returns_}) {
      const auto end = device_->make_event();
      device_->record(*end, queue);
      while (!device_->reached(*end)) {
        if (std::chrono::steady_clock::now() > until) return false;
        std::this_thread::sleep_for(std::chrono::microseconds(50));
      }
    }
  } catch (...) {
    // The device failed: it copies no more.
  }
  return true;
}

void Staging::open() {
  if (fetches_ == nullptr) fetches_ = device_->make_queue();
  if (returns_ == nullptr) returns_ = device_->make_queue();
  if (host_ == nullptr) host_ = device_->allocate_host(bytes_);
}

void Staging::leave_on_device(std::vector<bool> tensors, DeviceQueue queue) {
  may_stay_ = std::move(tensors);
  works_ = queue;
}

void Staging::fetch(size_t tensor, const TensorView& view) {
  const bool stays =
      tensor < may_stay_.size() && may_stay_[tensor] && view.dtype == DType::kFloat32;
  if (returned_ == nullptr) {
    worked_ = device_->make_event();
    for (Place& place : places_) {
      place.ready = device_->make_event();
      place.arrived = device_->make_event();
    }
    returned_ = device_->make_event();  // last: it says that all are there
  }
  if (!stays) open();
  Place& place = places_[tensor];
  device_->record(*place.ready, view.queue);
  if (!stays) {
    device_->wait_for(fetches_, *place.ready);
    device_->wait_for(fetches_, *returned_);  // the last mean has left the host memory
    if (view.count > 0)
      device_->copy_to_host(host_ + place.offset, view.data, bytes_of(view), fetches_);
    device_->record(*place.arrived, fetches_);
  }
  // Only now: a tensor whose copy could not be queued was not given, and gets no mean.
  if (std::find(callers_.begin(), callers_.end(), view.queue) == callers_.end())
    callers_.push_back(view.queue);
  place.view = view;
  place.stays = stays;
  place.fetched = true;
}

bool Staging::arrived(size_t tensor) const {
  const Place& place = places_[tensor];
  return !place.fetched || device_->reached(place.stays ? *place.ready : *place.arrived);
}

TensorView Staging::found_view(size_t tensor) const {
  const Place& place = places_[tensor];
  if (!place.fetched || place.stays) return place.view;
  return {.data = host_ + place.offset, .count = place.view.count, .dtype = place.view.dtype};
}

void Staging::give_back(StepReport& report) {
  bool any = false, any_stayed = false;
  for (Place& place : places_) {
    if (!place.fetched) continue;
    (place.stays ? any_stayed : any) = true;
    if (!place.stays) {
      report.device_to_host_bytes += bytes_of(place.view);
      report.host_to_device_bytes += bytes_of(place.view);
    }
    if (place.view.count > 0 && !place.stays)
      device_->copy_from_host(place.view.data, host_ + place.offset, bytes_of(place.view),
                              returns_);
    place.fetched = false;
    place.view = {};
  }
  if (any) device_->record(*returned_, returns_);
  if (any_stayed) device_->record(*worked_, works_);
}

// Kernels that form a mean where a gradient was, and copies of gradients.
void Staging::order_after_failure() noexcept {
  if (callers_.empty()) return;
  try {
    for (const DeviceQueue queue : {fetches_, returns_, works_}) {
      if (queue == nullptr) continue;
      const auto end = device_->make_event();
      device_->record(*end, queue);
      for (const DeviceQueue caller : callers_) device_->wait_for(caller, *end);
    }
  } catch (...) {
    // The device failed: nothing happens on it any more.
  }
}

void Staging::forget() {
  for (Place& place : places_) {
    place.fetched = false;
    place.view = {};
  }
  callers_.clear();
}

void Staging::close_step() {
  waiting_ = std::move(callers_);
  callers_.clear();
}

void Staging::order_callers() {
  for (const DeviceQueue queue : waiting_) {
    device_->wait_for(queue, *returned_);
    device_->wait_for(queue, *worked_);
  }
}

void Staging::order_last_callers() noexcept {
  try {
    order_callers();
  } catch (...) {
    // The device failed: nothing happens on it any more.
  }
}

}  // namespace thinwire
