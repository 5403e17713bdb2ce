// Store: opens entries, saves them, and loads them at the same or another number of ranks.
//
// A saved array is called '<key>/<name>'. Keys hold slashes, so a slash or per cent sign in an
// object's own name is written as %2F or %25: the last slash always ends the key.
// SPDX-License-Identifier: Apache-2.0
#include "thinwire/store.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <tuple>
#include <utility>

#include "core/check.h"
#include "feedback/follows_ranks.h"
#include "feedback/saved_ranks.h"

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

using Objects = std::map<std::string, std::unique_ptr<Stateful>>;
using States = std::map<std::string, StateArrays>;

// What was on a device that failed may be out of reach.
void give_back_what_can_be(const Objects& objects, const States& before) noexcept {
  for (const auto& [key, arrays] : before) {
    try {
      std::ignore = objects.at(key)->load(arrays);
    } catch (...) {
      // The error that is under way says why.
    }
  }
}

// Each object loads the state under its key, if there is one. When one refuses, those before it get
// their own back, and the Status begins with `whose`; when one throws, all do that can.
Status load_all(const Objects& objects, const States& states, const std::string& whose) {
  States before;
  try {
    for (const auto& [key, arrays] : states) {
      const auto found = objects.find(key);
      if (found == objects.end()) continue;
      before[key] = found->second->save();
      const Status status = found->second->load(arrays);
      if (status) continue;
      for (const auto& [changed, own] : before)
        if (changed != key) objects.at(changed)->load(own).or_throw();
      return Status::fail(ErrorCode::kMismatch,
                          whose + " '" + key + "' does not fit: " + status.message());
    }
  } catch (...) {
    give_back_what_can_be(objects, before);
    throw;
  }
  return Status::ok();
}

}  // namespace

uint64_t Store::new_identity() {
  std::random_device device;
  const uint64_t high = device(), low = device();
  return std::max<uint64_t>(1, high << 32 | low);
}

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

void Store::before_save(const void* owner, std::function<void()> finish) {
  if (finish)
    before_save_[owner] = std::move(finish);
  else
    before_save_.erase(owner);
}

void Store::await_owners() const {
  for (const auto& [owner, finish] : before_save_) finish();
}

StateArrays Store::save() const {
  await_owners();
  StateArrays all;
  const auto append = [&](const std::string& key, StateArrays arrays) {
    for (StateArray& array : arrays) {
      array.name = key + "/" + escape(array.name);
      all.push_back(std::move(array));
    }
  };
  for (const auto& [key, object] : objects_) append(key, object->save());
  for (const auto& [key, arrays] : waiting_) append(key, arrays);
  if (inside_ > 1) all.push_back(inside_marker(inside_));
  seal_state(all);
  return all;
}

StateArrays Store::save_of(
    const std::function<bool(const Stateful&, const StateArray&)>& wanted) const {
  StateArrays all;
  for (const auto& [key, object] : objects_)
    for (StateArray& array : object->save())
      if (wanted(*object, array)) {
        array.name = key + "/" + escape(array.name);
        all.push_back(std::move(array));
      }
  return all;
}

// Calls into(own, other) for each array of `others` that an object here has, whose `own` is empty
// if it lacks it; then the objects load what became of theirs. On failure nothing has changed.
Status Store::merge(const StateArrays& others,
                    const std::function<Status(StateArray&, const StateArray&)>& into) {
  std::map<std::string, StateArrays> merged;
  for (const StateArray& other : others) {
    const size_t slash = other.name.rfind('/');
    if (slash == std::string::npos)
      return Status::fail(ErrorCode::kMismatch, "store: array '" + other.name + "' has no key");
    const std::string key = other.name.substr(0, slash);
    const auto object = objects_.find(key);
    if (object == objects_.end()) continue;
    const std::string name = unescape(std::string_view(other.name).substr(slash + 1));
    StateArrays& own = merged.try_emplace(key, object->second->save()).first->second;
    auto found =
        std::find_if(own.begin(), own.end(), [&](const StateArray& a) { return a.name == name; });
    if (found == own.end()) {
      found = own.insert(found, StateArray());
      found->name = name;
      found->type = other.type;
    }
    if (Status status = into(*found, other); !status) return status;
  }
  return load_all(objects_, merged, "store: what another rank has of");
}

StateArrays Store::save_shared() const {
  return save_of([](const Stateful& /*of*/, const StateArray& array) {
    return array.on_resize == OnResize::kShared;
  });
}

Status Store::take_shared(const StateArrays& shared) {
  return merge(shared, [](StateArray& own, const StateArray& other) {
    const std::string name = own.name;
    own = other;
    own.name = name;
    return Status::ok();
  });
}

namespace {

// What follows the mean (ef21) has estimates that are averaged when ranks change, and owes nothing.
bool is_owed(const Stateful& of, const StateArray& array) {
  return !of.shares_state() &&
         (array.on_resize == OnResize::kOwedToMean || array.on_resize == OnResize::kJoin);
}

}  // namespace

StateArrays Store::save_owed() const { return save_of(is_owed); }

namespace {

template <typename T>
void add(std::vector<std::byte>& to, std::span<const std::byte> values) {
  for (size_t at = 0; at + sizeof(T) <= std::min(to.size(), values.size()); at += sizeof(T)) {
    T sum, value;
    std::memcpy(&sum, to.data() + at, sizeof sum);
    std::memcpy(&value, values.data() + at, sizeof value);
    sum += value;
    std::memcpy(to.data() + at, &sum, sizeof sum);
  }
}

}  // namespace

Status Store::add_owed(const StateArrays& owed) {
  for (const StateArray& other : owed) {
    if (objects_.contains(other.name.substr(0, other.name.rfind('/')))) continue;
    if (std::any_of(other.data.begin(), other.data.end(),
                    [](std::byte one) { return one != std::byte{0}; }))
      return Status::fail(
          ErrorCode::kMismatch,
          "store: nothing here takes over what another rank owes of '" + other.name + "'");
  }
  return merge(owed, [](StateArray& own, const StateArray& other) {
    if (own.type != other.type || own.on_resize != other.on_resize ||
        (own.on_resize == OnResize::kOwedToMean && own.data.size() != other.data.size())) {
      return Status::fail(ErrorCode::kMismatch,
                          "store: what another rank owes of '" + other.name + "' does not fit");
    } else if (own.on_resize == OnResize::kJoin) {
      own.data.insert(own.data.end(), other.data.begin(), other.data.end());
      own.shape = {own.data.size() / size_of(own.type)};
    } else if (own.type == StateType::kFloat32) {
      add<float>(own.data, other.data);
    } else {
      add<double>(own.data, other.data);
    }
    return Status::ok();
  });
}

bool Store::shares_state(const std::string& key) const {
  const auto found = objects_.find(key);
  return found != objects_.end() && found->second->shares_state();
}

void Store::drop_owed(const std::function<bool(const std::string& key)>& of) {
  std::map<std::string, StateArrays> emptied;
  for (const auto& [key, object] : objects_) {
    if (of && !of(key)) continue;
    StateArrays arrays = object->save();
    bool owes = false;
    for (StateArray& array : arrays) {
      if (!is_owed(*object, array)) continue;
      owes = true;
      if (array.on_resize == OnResize::kJoin) {
        array.data.clear();
        array.shape = {0};
      } else {
        std::fill(array.data.begin(), array.data.end(), std::byte{0});
      }
    }
    if (owes) emptied.emplace(key, std::move(arrays));
  }
  load_all(objects_, emptied, "store: without what was owed,").or_throw();
}

double Store::owed_norm() const {
  double squares = 0;
  for (const auto& [key, object] : objects_) squares += object->owed_squares();
  return std::sqrt(squares);
}

size_t Store::held_bytes() const {
  size_t bytes = 0;
  for (const auto& [key, object] : objects_) bytes += object->held_bytes();
  return bytes;
}

void Store::follow_ranks(size_t before, size_t now) {
  for (const auto& [key, object] : objects_) thinwire::follow_ranks(*object, before, now);
}

Status Store::load(const std::vector<StateArrays>& saved, int rank, int size, int inside) {
  THINWIRE_CHECK(0 <= rank && rank < size,
                 "store: rank " + std::to_string(rank) + " of " + std::to_string(size));
  THINWIRE_CHECK(inside >= 1 && size % inside == 0, "store: groups of " + std::to_string(inside) +
                                                        " of " + std::to_string(size) + " ranks");
  Result<SavedRanks> read = SavedRanks::read(saved);
  if (!read) return read.status();
  const int marked = marked_inside(saved[0]);
  if (saved.size() == 1 && marked > 1 && marked != inside)
    return Status::fail(ErrorCode::kMismatch,
                        "store: the state of one rank, in groups of " + std::to_string(marked) +
                            ", does not go on in groups of " + std::to_string(inside) +
                            "; the states of all ranks do");
  std::map<std::string, StateArrays> taken;
  for (StateArray& array : read.value().share(rank, size, inside)) {
    const size_t slash = array.name.rfind('/');
    const std::string key = array.name.substr(0, slash);
    array.name = unescape(std::string_view(array.name).substr(slash + 1));
    taken[key].push_back(std::move(array));
  }

  // Objects that are open take theirs now. What still changes them in the background would change
  // what they took.
  await_owners();
  if (Status status = load_all(objects_, taken, "store: the saved state of"); !status)
    return status;
  for (auto& [key, arrays] : taken)
    if (!objects_.contains(key)) waiting_[key] = std::move(arrays);
  inside_ = inside;
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
