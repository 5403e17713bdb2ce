// ScratchPool: the shortest vector that is long enough serves.
// SPDX-License-Identifier: Apache-2.0
#include "feedback/scratch_pool.h"

#include <algorithm>
#include <map>
#include <utility>

namespace thinwire {

PlacedVector ScratchPool::take(size_t count) {
  PlacedVector taken;
  {
    const std::lock_guard lock(mutex_);
    free_.reserve(free_.size() + taken_ + 1);
    ++taken_;
    auto found = std::find_if(free_.begin(), free_.end(), [&](const PlacedVector& vector) {
      return vector.values.size() >= count;
    });
    // Where none is long enough, a longer one takes the place of the longest.
    if (found == free_.end() && !free_.empty()) found = std::prev(free_.end());
    if (found != free_.end()) {
      taken = std::move(*found);
      free_.erase(found);
    }
  }
  if (taken.values.size() < count) {
    taken = {};  // is freed first
    try {
      taken = make_(count);
    } catch (...) {
      const std::lock_guard lock(mutex_);
      --taken_;
      throw;
    }
  }
  const std::span<float> values = taken.values.first(count);
  void* const memory = values.data();
  auto back = [pool = shared_from_this(), whole = std::move(taken)](void*) mutable {
    pool->give_back(std::move(whole));
  };
  return {values, std::shared_ptr<void>(memory, std::move(back))};
}

void ScratchPool::give_back(PlacedVector vector) noexcept {
  const std::lock_guard lock(mutex_);
  --taken_;
  const auto longer = [](const PlacedVector& a, const PlacedVector& b) {
    return a.values.size() < b.values.size();
  };
  free_.insert(std::upper_bound(free_.begin(), free_.end(), vector, longer), std::move(vector));
}

std::shared_ptr<ScratchPool> shared_scratch_pool(uint64_t place, ScratchPool::Make make) {
  static std::mutex mutex;
  static std::map<uint64_t, std::weak_ptr<ScratchPool>> pools;
  const std::lock_guard lock(mutex);
  std::erase_if(pools, [](const auto& pool) { return pool.second.expired(); });
  if (const auto found = pools.find(place); found != pools.end())
    if (auto pool = found->second.lock()) return pool;
  auto made = std::make_shared<ScratchPool>(std::move(make));
  pools[place] = made;
  return made;
}

}  // namespace thinwire
