// Store: opens entries, saves them, and loads them at the same or another number of ranks.
//
// A saved array is called '<key>/<name>'. Keys hold slashes, so a slash or per cent sign in an
// object's own name is written as %2F or %25: the last slash always ends the key.
// SPDX-License-Identifier: Apache-2.0
#include "thinwire/store.h"

#include <cstring>
#include <set>
#include <type_traits>
#include <utility>

#include "core/check.h"
#include "core/odd_one_out.h"

namespace thinwire {
namespace {

std::string escape(std::string_view name) {
  std::string escaped;
  for (const char c : name) {
    if (c == '/')
      escaped += "%2F";
    else if (c == '%')
      escaped += "%25";
    else
      escaped += c;
  }
  return escaped;
}

std::string unescape(std::string_view escaped) {
  std::string name;
  while (!escaped.empty()) {
    const bool slash = escaped.starts_with("%2F");
    const bool encoded = slash || escaped.starts_with("%25");
    name += slash ? '/' : escaped.front();
    escaped.remove_prefix(encoded ? 3 : 1);
  }
  return name;
}

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
    if (is_seal(array)) continue;
    if (Status status = check(array); !status) return status;
    if (!by_name.emplace(array.name, &array).second)
      return mismatch("array '" + array.name + "' is there twice");
  }
  return Status::ok();
}

// Old ranks ran one program: the same arrays everywhere. What each rank remembers for itself may
// differ in length, what is owed to the mean may not.
Status compare(const ByName& first, const ByName& other, size_t rank) {
  const std::string where = " on old rank " + std::to_string(rank) + " differs from old rank 0";
  for (const auto& [name, array] : first) {
    const auto found = other.find(name);
    if (found == other.end())
      return mismatch("array '" + std::string(name) + "' is missing on old rank " +
                      std::to_string(rank));
    const StateArray& twin = *found->second;
    if (twin.type != array->type || twin.on_resize != array->on_resize)
      return mismatch("type of array '" + std::string(name) + "'" + where);
    if (array->on_resize == OnResize::kOwedToMean && twin.shape != array->shape)
      return mismatch("shape of array '" + std::string(name) + "'" + where);
  }
  for (const auto& [name, array] : other)
    if (!first.contains(name))
      return mismatch("array '" + std::string(name) + "' is on old rank " + std::to_string(rank) +
                      " but not on old rank 0");
  return Status::ok();
}

// What all ranks share has the same bits on all of them. The odd one is who differs from most.
Status compare_shared(const std::vector<ByName>& ranks) {
  for (const auto& [name, array] : ranks[0]) {
    if (array->on_resize != OnResize::kShared) continue;
    const auto alike = [&, &name = name](size_t a, size_t b) {
      const StateArray &one = *ranks[a].at(name), &other = *ranks[b].at(name);
      return one.shape == other.shape && one.data == other.data;
    };
    const size_t odd = odd_one_out(ranks.size(), alike);
    if (odd < ranks.size())
      return mismatch("array '" + std::string(name) +
                      "', which all ranks share, is another one on old rank " +
                      std::to_string(odd));
  }
  return Status::ok();
}

// data = the mean over ranks, summed in double in rank order.
template <typename T>
void average(std::string_view name, const std::vector<ByName>& ranks,
             std::vector<std::byte>& data) {
  std::vector<double> sums(data.size() / sizeof(T));
  for (const ByName& rank : ranks) {
    const std::byte* from = rank.at(name)->data.data();
    for (size_t i = 0; i < sums.size(); ++i) {
      T value;
      std::memcpy(&value, from + i * sizeof value, sizeof value);
      sums[i] += value;
    }
  }
  for (size_t i = 0; i < sums.size(); ++i) {
    const T mean = static_cast<T>(sums[i] / static_cast<double>(ranks.size()));
    std::memcpy(data.data() + i * sizeof mean, &mean, sizeof mean);
  }
}

void join(const std::vector<ByName>& ranks, StateArray& joined) {
  const std::string name = joined.name;
  joined.shape = {0};
  joined.data.clear();
  for (const ByName& rank : ranks) {
    const StateArray& part = *rank.at(name);
    joined.shape[0] += part.shape[0];
    joined.data.insert(joined.data.end(), part.data.begin(), part.data.end());
  }
}

}  // namespace

Stateful& Store::open_any(const std::string& key,
                          const std::function<std::unique_ptr<Stateful>()>& make) {
  if (const auto found = objects_.find(key); found != objects_.end()) return *found->second;
  std::unique_ptr<Stateful> object = make();
  THINWIRE_CHECK(object != nullptr, "store: nothing was made for '" + key + "'");
  if (const auto found = waiting_.find(key); found != waiting_.end()) {
    if (const Status status = object->load(found->second); !status)
      throw Error(ErrorCode::kMismatch,
                  "store: the saved state of '" + key + "' does not fit: " + status.message());
    waiting_.erase(found);
  }
  return *(objects_[key] = std::move(object));
}

void Store::drop(const std::string& key) {
  objects_.erase(key);
  waiting_.erase(key);
}

StateArrays Store::save() const {
  StateArrays all;
  const auto append = [&](const std::string& key, StateArrays arrays) {
    for (StateArray& array : arrays) {
      array.name = key + "/" + escape(array.name);
      all.push_back(std::move(array));
    }
  };
  for (const auto& [key, object] : objects_) append(key, object->save());
  for (const auto& [key, arrays] : waiting_) append(key, arrays);
  seal_state(all);
  return all;
}

Status Store::load(const std::vector<StateArrays>& saved, int rank, int size) {
  THINWIRE_CHECK(0 <= rank && rank < size,
                 "store: rank " + std::to_string(rank) + " of " + std::to_string(size));
  if (saved.empty()) return mismatch("there are no saved states to load");
  std::vector<ByName> ranks(saved.size());
  for (size_t r = 0; r < saved.size(); ++r) {
    if (Status status = check_seal(saved[r]); !status)
      return Status::fail(
          status.code(),
          "store: " + (saved.size() == 1 ? "" : "old rank " + std::to_string(r) + ": ") +
              status.message());
    if (Status status = index(saved[r], ranks[r]); !status) return status;
    if (Status status = compare(ranks[0], ranks[r], r); !status) return status;
  }
  if (Status status = compare_shared(ranks); !status) return status;

  const size_t from = static_cast<size_t>(rank) % saved.size();
  const bool resized = saved.size() != static_cast<size_t>(size);
  std::map<std::string, StateArrays> taken;
  for (const StateArray& array : saved[from]) {
    if (is_seal(array)) continue;
    const size_t slash = array.name.rfind('/');
    StateArray mine = array;
    if (resized && array.on_resize == OnResize::kJoin) join(ranks, mine);
    mine.name = unescape(std::string_view(array.name).substr(slash + 1));
    if (resized && array.on_resize == OnResize::kOwedToMean) {
      if (array.type == StateType::kFloat32)
        average<float>(array.name, ranks, mine.data);
      else
        average<double>(array.name, ranks, mine.data);
    }
    taken[array.name.substr(0, slash)].push_back(std::move(mine));
  }

  // Objects that are open take theirs now; when one refuses, those before it get their own back.
  std::map<std::string, StateArrays> before;
  for (const auto& [key, arrays] : taken) {
    const auto found = objects_.find(key);
    if (found == objects_.end()) continue;
    before[key] = found->second->save();
    if (Status status = found->second->load(arrays); !status) {
      for (const auto& [changed, own] : before)
        if (changed != key) objects_.at(changed)->load(own).or_throw();
      return mismatch("the saved state of '" + key + "' does not fit: " + status.message());
    }
  }
  for (auto& [key, arrays] : taken)
    if (!objects_.contains(key)) waiting_[key] = std::move(arrays);
  return Status::ok();
}

bool Store::holds(const std::string& key) const {
  return objects_.contains(key) || waiting_.contains(key);
}

std::vector<std::string> Store::unclaimed() const {
  std::vector<std::string> keys;
  for (const auto& [key, arrays] : waiting_) keys.push_back(key);
  return keys;
}

}  // namespace thinwire
