// FragmentCut: how a model was cut into fragments, saved with their state, which goes on with the
// same cut alone.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "sync/fragments.h"
#include "thinwire/state.h"

namespace thinwire {

// The same on all ranks.
class FragmentCut final : public Stateful {
 public:
  FragmentCut(const std::vector<TensorSpec>& tensors,
              const std::vector<std::vector<size_t>>& fragments, FragmentOrder order);

  // Fails with kMismatch, naming what differs, unless `saved` cuts the same tensors into the same
  // fragments. Orders may differ where they come to the same.
  Status compare(const FragmentCut& saved) const;

  bool shares_state() const noexcept override { return true; }
  StateArrays save() const override;
  // Compares, and changes nothing.
  Status load(const StateArrays& arrays) override;

 private:
  FragmentCut() = default;

  std::vector<std::string> names_;  // of tensors, for errors; not saved
  std::vector<int64_t> sums_;       // of each tensor's name and shape, XXH3
  std::vector<int64_t> fragments_;  // of each tensor
  int64_t count_ = 0;               // of fragments
  int64_t order_ = 0;               // as FragmentOrder
};

}  // namespace thinwire
