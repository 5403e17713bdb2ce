// Files that are read once and shared by all users at the same time.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>

namespace thinwire {

// Keeps values by key for as long as somebody else holds them. Safe to use from any thread: those
// who ask for a value that is being loaded wait for it.
template <typename Value>
class LoadOnce {
 public:
  template <typename Load>
  std::shared_ptr<const Value> get(const std::string& key, Load load) {
    const std::lock_guard lock(mutex_);
    std::weak_ptr<const Value>& known = values_[key];
    std::shared_ptr<const Value> value = known.lock();
    if (value == nullptr) known = value = std::make_shared<const Value>(load());
    return value;
  }

 private:
  std::mutex mutex_;
  std::map<std::string, std::weak_ptr<const Value>> values_;
};

}  // namespace thinwire
