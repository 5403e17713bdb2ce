// PartStore: a store in a store, for exchanges whose streams have the same names.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "thinwire/state.h"
#include "thinwire/store.h"

namespace thinwire {

// Saved and loaded as one object of the store around it, which redistributes its arrays to other
// numbers of ranks.
class PartStore final : public Stateful {
 public:
  Store& store() noexcept { return store_; }

  StateArrays save() const override {
    StateArrays arrays = store_.save();
    std::erase_if(arrays, is_seal);  // the store around it has one for all
    return arrays;
  }
  Status load(const StateArrays& arrays) override { return store_.load({arrays}, 0, 1); }

 private:
  Store store_;
};

}  // namespace thinwire
