// Store: opens entries, saves them, and loads them at the same or another number of ranks.
//
// A saved array is called '<key>/<name>'. Keys hold slashes, so a slash or per cent sign in an
// object's own name is written as %2F or %25: the last slash always ends the key.
// SPDX-License-Identifier: Apache-2.0
#include "thinwire/store.h"

#include <utility>

#include "core/check.h"
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
  if (inside_ > 1) all.push_back(inside_marker(inside_));
  seal_state(all);
  return all;
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

  // Objects that are open take theirs now; when one refuses, those before it get their own back.
  std::map<std::string, StateArrays> before;
  for (const auto& [key, arrays] : taken) {
    const auto found = objects_.find(key);
    if (found == objects_.end()) continue;
    before[key] = found->second->save();
    if (Status status = found->second->load(arrays); !status) {
      for (const auto& [changed, own] : before)
        if (changed != key) objects_.at(changed)->load(own).or_throw();
      return Status::fail(ErrorCode::kMismatch, "store: the saved state of '" + key +
                                                    "' does not fit: " + status.message());
    }
  }
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
