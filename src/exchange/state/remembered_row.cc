// RememberedRow: its saved state.
// SPDX-License-Identifier: Apache-2.0
#include "exchange/state/remembered_row.h"

namespace thinwire {
namespace {

constexpr const char* kName = "kept";

}  // namespace

StateArrays RememberedRow::save() const {
  return {make_state(kName, std::span<const float>(committed_), OnResize::kShared)};
}

Status RememberedRow::load(const StateArrays& arrays) {
  AlignedVector<float> loaded(committed_.size());
  if (Status status = copy_state(arrays, kName, std::span<float>(loaded)); !status) return status;
  committed_.swap(loaded);
  return Status::ok();
}

}  // namespace thinwire
