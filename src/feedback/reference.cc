// The memory `reference`: sends differences to the weights that all ranks hold.
// SPDX-License-Identifier: Apache-2.0
#include "feedback/reference.h"

#include <algorithm>

#include "core/check.h"
#include "kernel/memory_passes.h"

namespace thinwire {

Reference::Reference(std::span<const float> start) : kept_(start.size()) {
  std::copy(start.begin(), start.end(), kept_.now.begin());
}

Signal Reference::prepare(std::span<const float> values, const Call& /*call*/) {
  THINWIRE_CHECK(values.size() == kept_.now.size(), "reference: the values have another length");
  const Moments moments = kernel::weighted_sum_with_moments(1, values, -1, kept_.now, kept_.next);
  return {.values = kept_.next, .fresh = {}, .moments = moments};
}

void Reference::receive(std::span<float> next) {
  THINWIRE_CHECK(next.size() == kept_.next.size(), "reference: the result has another length");
  std::copy(next.begin(), next.end(), kept_.next.begin());
  received_ = true;
}

void Reference::commit() {
  THINWIRE_CHECK(received_, "reference: commit without receive");
  received_ = false;
  kept_.commit();
}

Status Reference::load(const StateArrays& arrays) {
  if (Status status = kept_.read(arrays, "values"); !status) return status;
  kept_.commit();
  received_ = false;
  return Status::ok();
}

}  // namespace thinwire
