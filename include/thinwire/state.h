// Saved state: named arrays, and the objects that can be saved as such.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "thinwire/status.h"

namespace thinwire {

enum class StateType : uint8_t { kFloat32, kFloat64, kInt64, kUint8 };

// What happens to an array if a state that n ranks saved is loaded by m ranks.
enum class OnResize : uint8_t {
  kOwedToMean,  // every new rank gets the mean over the old ranks, so that (1/n) x the sum is kept
  kCopy,        // new rank r takes the array of old rank r mod n
  kJoin,        // every new rank gets those of all old ranks as one, in rank order; one-dimensional
  kShared,      // all ranks hold the same bits, and every new rank takes them
};

struct StateArray {
  std::string name;  // unique within its owner; '/' separates levels
  StateType type = StateType::kUint8;
  std::vector<uint64_t> shape;
  OnResize on_resize = OnResize::kCopy;
  std::vector<std::byte> data;  // little endian, row-major
};

using StateArrays = std::vector<StateArray>;

size_t size_of(StateType type) noexcept;

// The array `name`, or null.
const StateArray* find_state(const StateArrays& arrays, std::string_view name) noexcept;

// Make one-dimensional arrays.
StateArray make_state(std::string name, std::span<const float> values, OnResize on_resize);
StateArray make_state(std::string name, std::span<const double> values, OnResize on_resize);
StateArray make_state(std::string name, std::span<const int64_t> values, OnResize on_resize);

// Copy the array `name` into `out`. They fail if it is absent or has another type or length.
Status copy_state(const StateArrays& from, std::string_view name, std::span<float> out);
Status copy_state(const StateArrays& from, std::string_view name, std::span<double> out);
Status copy_state(const StateArrays& from, std::string_view name, std::span<int64_t> out);

// Adds an array with a checksum of each of the others (its name, type, shape, OnResize and data),
// which check_seal compares. If there are no arrays, none is added.
void seal_state(StateArrays& arrays);
bool is_seal(const StateArray& array) noexcept;

// Fails with kCorrupt if an array is not as it was when it was sealed, and names it. The order of
// arrays does not matter. Arrays without a seal, as earlier versions of thinwire wrote them, pass.
Status check_seal(const StateArrays& arrays);

// An object whose state from earlier steps can be saved and restored bit for bit.
class Stateful {
 public:
  virtual ~Stateful() = default;

  // The state as of the last commit. Empty for objects that remember nothing.
  virtual StateArrays save() const { return {}; }

  // Whether save returns arrays with OnResize::kShared.
  virtual bool shares_state() const noexcept { return false; }

  // Whether it does after some steps. The same on all ranks whatever steps they took, unlike
  // shares_state.
  virtual bool may_share_state() const noexcept { return shares_state(); }

  // The sum of the squares of what it owes to other ranks: of all floats that save returns with
  // OnResize::kOwedToMean or kJoin; 0 if it shares state. Objects that need no copy for it override
  // it.
  virtual double owed_squares() const;

  // Bytes of the vectors that it keeps from step to step: twice what save returns, for the state and
  // the copy that a step writes. Objects that keep more or fewer override it.
  virtual size_t held_bytes() const;

  // Restores a saved state. On failure the object is as it was before.
  virtual Status load(const StateArrays& /*arrays*/) { return Status::ok(); }
};

}  // namespace thinwire
