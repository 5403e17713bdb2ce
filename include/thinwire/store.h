// Store: holds all memories and encoder states by stream, so that an exchange can be rebuilt
// without loss.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "thinwire/state.h"
#include "thinwire/status.h"

namespace thinwire {

// Owns stateful objects under keys such as "conv1.weight/residual". A loaded state is kept under
// its key until the object is opened. Threads must not share a store while keys are opened or
// loaded.
class Store {
 public:
  // A random number that no other store has: members of a group whose ranks change are known by it.
  // It is not saved.
  uint64_t identity() const noexcept { return identity_; }

  // The object under `key`. The first call makes it by `make` and gives it its loaded state, if
  // there is one. Throws Error(kMismatch) if the loaded state does not fit, or if the key holds
  // another type.
  template <typename T>
  T& open(const std::string& key, const std::function<std::unique_ptr<T>()>& make) {
    Stateful& object = open_any(key, [&]() -> std::unique_ptr<Stateful> { return make(); });
    if (auto* typed = dynamic_cast<T*>(&object)) return *typed;
    throw Error(ErrorCode::kMismatch, "store: '" + key + "' holds an object of another type");
  }

  // Whether there is an object, or a loaded state, under `key`.
  bool holds(const std::string& key) const;

  // Whether there is an object under `key` that follows what all ranks share
  // (Stateful::shares_state).
  bool shares_state(const std::string& key) const;

  // Forgets the object under `key`, for example because a stream changes its method for good.
  void drop(const std::string& key);

  // Returns all state, with '<key>/' before each array's name, and a seal. States that were loaded
  // and never opened are included.
  StateArrays save() const;

  // Has `finish` called at the beginning of each save and load, on its thread, by an owner whose
  // objects change in the background; null ends that. What it throws, they throw.
  void before_save(const void* owner, std::function<void()> finish);

  // Calls what owners gave before_save. Afterwards they may end, and others go on with their
  // objects.
  void await_owners() const;

  // Loads the share of `rank`, one of `size` ranks, from the states that `saved.size()` ranks wrote
  // (index = old rank). If the numbers differ, arrays are redistributed as their OnResize says.
  // `inside` is ExchangeOptions::inside of the run that goes on; what groups of ranks saved once
  // counts once, and arrays are also redistributed if the number of groups differs. Replaces
  // whatever is under the same keys. On failure nothing changes: kCorrupt if a state is not what
  // was saved, kMismatch if the old ranks' states contradict each other.
  Status load(const std::vector<StateArrays>& saved, int rank, int size, int inside = 1);

  // The state that all ranks hold alike (OnResize::kShared), named as by save; and the objects that
  // are here take that of another rank, beside what is their own. Fails with kMismatch, and nothing
  // has changed, if it does not fit.
  StateArrays save_shared() const;
  Status take_shared(const StateArrays& shared);

  // What this rank owes (OnResize::kOwedToMean and kJoin), and addition of what another rank owed.
  // add_owed fails with kMismatch, and nothing has changed, if it does not fit.
  StateArrays save_owed() const;
  Status add_owed(const StateArrays& owed);
  // Makes what this rank owes nothing, because another rank took it over or it is settled; of all
  // objects, or of those under keys for which `of` says so.
  void drop_owed(const std::function<bool(const std::string& key)>& of = {});
  double owed_norm() const;  // l2, of all floats of save_owed

  // Bytes that its objects keep (Stateful::held_bytes), without loaded states that wait.
  size_t held_bytes() const;

  // The memories were of one of `before` ranks and go on as those of one of `now`: what is owed to
  // the mean is multiplied by now / before, and objects that know their ranks follow
  // (FollowsRanks).
  void follow_ranks(size_t before, size_t now);

  // Ranks per group of the exchange whose memories these are, which a group holds once; 1 without a
  // hierarchy. make_exchange and load set it, and save tells those who load.
  int inside() const noexcept { return inside_; }
  void set_inside(int inside) noexcept { inside_ = inside; }

  // Keys that were loaded and not opened since, a sign of another model or method.
  std::vector<std::string> unclaimed() const;

 private:
  StateArrays save_of(const std::function<bool(const Stateful&, const StateArray&)>& wanted) const;
  Status merge(const StateArrays& others,
               const std::function<Status(StateArray&, const StateArray&)>& into);
  Stateful& open_any(const std::string& key,
                     const std::function<std::unique_ptr<Stateful>()>& make);

  static uint64_t new_identity();

  uint64_t identity_ = new_identity();  // not 0
  std::map<std::string, std::unique_ptr<Stateful>> objects_;
  std::map<std::string, StateArrays> waiting_;
  std::map<const void*, std::function<void()>> before_save_;  // by owner; independent of each other
  int inside_ = 1;
};

}  // namespace thinwire
