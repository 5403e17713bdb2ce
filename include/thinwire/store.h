// Where all memories live: keyed by stream, beside the exchange, so that it can be rebuilt without
// loss.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "thinwire/state.h"
#include "thinwire/status.h"

namespace thinwire {

// Owns stateful objects under keys such as "conv1.weight/residual". A loaded state waits under its
// key until the object is opened. Not shared between threads while keys are opened or loaded.
class Store {
 public:
  // The object under `key`, made by `make` the first time and given its loaded state, if there is
  // one. Throws Error(kMismatch) when the loaded state does not fit, or when the key holds another
  // type.
  template <typename T>
  T& open(const std::string& key, const std::function<std::unique_ptr<T>()>& make) {
    Stateful& object = open_any(key, [&]() -> std::unique_ptr<Stateful> { return make(); });
    if (auto* typed = dynamic_cast<T*>(&object)) return *typed;
    throw Error(ErrorCode::kMismatch, "store: '" + key + "' holds an object of another type");
  }

  // Whether there is an object under `key`, or a state that waits for one.
  bool holds(const std::string& key) const;

  // Forgets the object under `key`, as when a stream changes its method for good.
  void drop(const std::string& key);

  // Everything, with '<key>/' before each array's name, and a seal; also what was loaded and never opened.
  StateArrays save() const;

  // Takes what `rank` of `size` ranks gets from the states that `saved.size()` ranks wrote (index =
  // old rank), redistributed as each array's OnResize says when the sizes differ. Replaces whatever
  // is under the same keys. Fails, changing nothing: kCorrupt when a state is not what was saved,
  // kMismatch when the old ranks' states contradict each other.
  Status load(const std::vector<StateArrays>& saved, int rank, int size);

  // Keys that were loaded and not opened since: a sign of another model or method.
  std::vector<std::string> unclaimed() const;

 private:
  Stateful& open_any(const std::string& key,
                     const std::function<std::unique_ptr<Stateful>()>& make);

  std::map<std::string, std::unique_ptr<Stateful>> objects_;
  std::map<std::string, StateArrays> waiting_;
};

}  // namespace thinwire
