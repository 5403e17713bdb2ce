// MemorySlot: a stream's memory in the store, under a key that does not depend on the method.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "feedback/follows_ranks.h"
#include "thinwire/store.h"

namespace thinwire {

// An object and the text of the method that it belongs to.
template <typename T>
class MemorySlot final : public Stateful, public FollowsRanks {
 public:
  MemorySlot(std::string method, std::unique_ptr<T> object)
      : method_(std::move(method)), object_(std::move(object)) {}

  StateArrays save() const override { return object_->save(); }
  bool shares_state() const noexcept override { return object_->shares_state(); }
  bool may_share_state() const noexcept override { return object_->may_share_state(); }
  double owed_squares() const override { return object_->owed_squares(); }
  size_t held_bytes() const override { return object_->held_bytes(); }
  Status load(const StateArrays& arrays) override { return object_->load(arrays); }

  void follow_ranks(size_t before, size_t now) override {
    thinwire::follow_ranks(*object_, before, now);
  }

  const std::string& method() const noexcept { return method_; }
  T& object() noexcept { return *object_; }

  void replace(std::string method, std::unique_ptr<T> object) {
    method_ = std::move(method);
    object_ = std::move(object);
  }

 private:
  std::string method_;
  std::unique_ptr<T> object_;
};

// The slot under `key`. An object that an earlier exchange left there is kept when it belongs to
// the same method, and replaced by a new one otherwise: options are part of the object, so it must
// not be used under others; `before_replacing`, which may throw, is told that one's method first. A
// loaded state is taken whatever options wrote it, as long as it fits.
template <typename T>
MemorySlot<T>& open_slot(
    Store& store, const std::string& key, const std::string& method,
    const std::function<std::unique_ptr<T>()>& make,
    const std::function<void(const std::string& before)>& before_replacing = nullptr) {
  auto& slot = store.open<MemorySlot<T>>(
      key, [&] { return std::make_unique<MemorySlot<T>>(method, make()); });
  if (slot.method() == method) return slot;
  if (before_replacing) before_replacing(slot.method());
  slot.replace(method, make());
  return slot;
}

template <typename T>
T& open_memory(Store& store, const std::string& key, const std::string& method,
               const std::function<std::unique_ptr<T>()>& make) {
  return open_slot<T>(store, key, method, make).object();
}

// Puts `next` into the slot in mid-run. What is there hands its state over where only the options
// differ ("topk:density=0.1" and "topk:density=0.01"), if it fits; other methods start afresh.
template <typename T>
void change_method(MemorySlot<T>& slot, const std::string& method, std::unique_ptr<T> next) {
  const auto name = [](const std::string& text) {
    return text.substr(0, text.find_first_of(": "));
  };
  if (name(slot.method()) == name(method))
    (void)next->load(slot.object().save());  // one that does not fit leaves it as it was
  slot.replace(method, std::move(next));
}

}  // namespace thinwire
