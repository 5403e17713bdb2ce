// ScratchPool: memory that the memories of one place use in turn.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

namespace thinwire {

// A vector of floats, and what keeps it where it lies.
struct PlacedVector {
  std::span<float> values;
  std::shared_ptr<void> owner;
};

// A vector that is taken goes back to the pool when its owner is dropped, and the next that asks
// for so many values or fewer gets it, while it is still in cache. So there are as many vectors as
// are in use at a time: one for streams that are encoded one after another. Any thread may call.
class ScratchPool : public std::enable_shared_from_this<ScratchPool> {
 public:
  using Make = std::function<PlacedVector(size_t count)>;
  explicit ScratchPool(Make make) : make_(std::move(make)) {}

  // With anything in it. Throws what `make` throws.
  PlacedVector take(size_t count);

 private:
  void give_back(PlacedVector vector) noexcept;

  const Make make_;
  std::mutex mutex_;
  std::vector<PlacedVector> free_;  // the shortest first, with room for all that are taken
  size_t taken_ = 0;
};

// The pool of a place, the same for all that hold it at a time. `make` makes the vectors of a new
// one. Any thread may call.
std::shared_ptr<ScratchPool> shared_scratch_pool(uint64_t place, ScratchPool::Make make);

}  // namespace thinwire
