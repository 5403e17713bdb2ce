// Compares the states of old ranks, and redistributes them as OnResize says.
// SPDX-License-Identifier: Apache-2.0
#include "feedback/saved_ranks.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>

#include "core/odd_one_out.h"

namespace thinwire {
namespace {

constexpr std::string_view kMarker = "exchange/inside";

Status mismatch(const std::string& what) {
  return Status::fail(ErrorCode::kMismatch, "store: " + what);
}

// Whether an array is what it says it is, wherever it comes from.
Status check(const StateArray& array) {
  if (array.name.find('/') == std::string::npos)
    return mismatch("array '" + array.name + "' has no key");
  uint64_t size = size_of(array.type);
  for (const uint64_t extent : array.shape)
    if (__builtin_mul_overflow(size, extent, &size))
      return mismatch("array '" + array.name + "' is too large");
  if (size != array.data.size())
    return mismatch("array '" + array.name + "' has " + std::to_string(array.data.size()) +
                    " bytes, its shape needs " + std::to_string(size));
  if (array.on_resize == OnResize::kJoin && array.shape.size() != 1)
    return mismatch("array '" + array.name + "' is to be joined but not one-dimensional");
  if (array.on_resize == OnResize::kOwedToMean && array.type != StateType::kFloat32 &&
      array.type != StateType::kFloat64)
    return mismatch("array '" + array.name + "' is owed to the mean but not of floats");
  return Status::ok();
}

// The arrays of one old rank by name; fails when one is bad or there twice.
using ByName = std::map<std::string_view, const StateArray*>;
Status index(const StateArrays& arrays, ByName& by_name) {
  for (const StateArray& array : arrays) {
    if (is_seal(array) || array.name == kMarker) continue;
    if (Status status = check(array); !status) return status;
    if (!by_name.emplace(array.name, &array).second)
      return mismatch("array '" + array.name + "' is there twice");
  }
  return Status::ok();
}

// Old ranks ran one program: those at the same place of their groups have the same arrays.
Status compare_names(const ByName& first, size_t first_rank, const ByName& other, size_t rank) {
  for (const auto& [name, array] : first)
    if (!other.contains(name))
      return mismatch("array '" + std::string(name) + "' is missing on old rank " +
                      std::to_string(rank));
  for (const auto& [name, array] : other)
    if (!first.contains(name))
      return mismatch("array '" + std::string(name) + "' is on old rank " + std::to_string(rank) +
                      " but not on old rank " + std::to_string(first_rank));
  return Status::ok();
}

// What each rank remembers for itself may differ in length, what is owed to the mean may not.
Status compare(const StateArray& first, const StateArray& other, const std::string& where) {
  if (other.type != first.type || other.on_resize != first.on_resize)
    return mismatch("type of array '" + first.name + "'" + where);
  if (first.on_resize == OnResize::kOwedToMean && other.shape != first.shape)
    return mismatch("shape of array '" + first.name + "'" + where);
  return Status::ok();
}

// data = the mean over arrays, summed in double in their order.
template <typename T>
void average(const std::vector<const StateArray*>& arrays, std::vector<std::byte>& data) {
  std::vector<double> sums(data.size() / sizeof(T));
  for (const StateArray* const array : arrays) {
    const std::byte* from = array->data.data();
    for (size_t i = 0; i < sums.size(); ++i) {
      T value;
      std::memcpy(&value, from + i * sizeof value, sizeof value);
      sums[i] += value;
    }
  }
  for (size_t i = 0; i < sums.size(); ++i) {
    const T mean = static_cast<T>(sums[i] / static_cast<double>(arrays.size()));
    std::memcpy(data.data() + i * sizeof mean, &mean, sizeof mean);
  }
}

void join(const std::vector<const StateArray*>& arrays, StateArray& joined) {
  joined.shape = {0};
  joined.data.clear();
  for (const StateArray* const part : arrays) {
    joined.shape[0] += part->shape[0];
    joined.data.insert(joined.data.end(), part->data.begin(), part->data.end());
  }
}

}  // namespace

StateArray inside_marker(int inside) {
  const int64_t value[1] = {inside};
  return make_state(std::string(kMarker), std::span<const int64_t>(value), OnResize::kCopy);
}

int marked_inside(const StateArrays& arrays) {
  int64_t inside[1] = {1};
  for (const StateArray& array : arrays)
    if (array.name == kMarker && !copy_state(arrays, kMarker, inside)) return 0;
  return inside[0] < 1 || inside[0] > INT32_MAX ? 0 : static_cast<int>(inside[0]);
}

Result<SavedRanks> SavedRanks::read(const std::vector<StateArrays>& saved) {
  if (saved.empty()) return mismatch("there are no saved states to load");
  SavedRanks all;
  all.ranks_ = saved.size();
  all.inside_ = static_cast<size_t>(marked_inside(saved[0]));
  std::vector<ByName> ranks(saved.size());
  for (size_t r = 0; r < saved.size(); ++r) {
    if (Status status = check_seal(saved[r]); !status)
      return Status::fail(
          status.code(),
          "store: " + (saved.size() == 1 ? "" : "old rank " + std::to_string(r) + ": ") +
              status.message());
    if (Status status = index(saved[r], ranks[r]); !status) return status;
    if (all.inside_ == 0 || static_cast<size_t>(marked_inside(saved[r])) != all.inside_ ||
        (saved.size() > 1 && saved.size() % all.inside_ != 0))
      return mismatch("the groups of old rank " + std::to_string(r) + " are not those of " +
                      std::to_string(saved.size()) + " ranks");
    const size_t first = r % all.inside_;
    if (Status status = compare_names(ranks[first], first, ranks[r], r); !status) return status;
  }

  std::map<std::string_view, std::vector<size_t>> numbers;  // of the ranks that hold an array
  for (size_t r = 0; r < ranks.size(); ++r)
    for (const auto& [name, array] : ranks[r]) {
      numbers[name].push_back(r);
      Holders& holders = all.arrays_[name];
      holders.push_back(array);
      const std::string where = " on old rank " + std::to_string(r) + " differs from old rank " +
                                std::to_string(numbers[name].front());
      if (Status status = compare(*holders.front(), *array, where); !status) return status;
    }
  for (const auto& [name, holders] : all.arrays_) {
    if (holders.size() != saved.size() && holders.size() * all.inside_ != saved.size())
      return mismatch("array '" + std::string(name) +
                      "' is on more than one rank of a group, and not on all");
    if (holders.front()->on_resize != OnResize::kShared) continue;
    // All have the same bits. The odd one is who differs from most.
    const auto alike = [&, &holders = holders](size_t a, size_t b) {
      return holders[a]->shape == holders[b]->shape && holders[a]->data == holders[b]->data;
    };
    if (const size_t odd = odd_one_out(holders.size(), alike); odd < holders.size())
      return mismatch("array '" + std::string(name) +
                      "', which all ranks share, is another one on old rank " +
                      std::to_string(numbers[name][odd]));
  }
  return all;
}

StateArrays SavedRanks::share(int rank, int size, int inside) const {
  const auto number = static_cast<size_t>(rank), ranks = static_cast<size_t>(size);
  const auto of = static_cast<size_t>(inside);
  StateArrays mine;
  for (const auto& [name, holders] : arrays_) {
    const bool once = holders.size() * inside_ == ranks_;  // by each group
    const size_t place = once ? number / of : number, places = once ? ranks / of : ranks;
    StateArray& taken = mine.emplace_back(*holders[place % holders.size()]);
    if (holders.size() == places) continue;
    if (taken.on_resize == OnResize::kJoin) join(holders, taken);
    if (taken.on_resize != OnResize::kOwedToMean) continue;
    if (taken.type == StateType::kFloat32)
      average<float>(holders, taken.data);
    else
      average<double>(holders, taken.data);
  }
  return mine;
}

}  // namespace thinwire
