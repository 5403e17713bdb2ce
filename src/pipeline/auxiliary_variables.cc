// AuxiliaryVariables: keeps the changes of a step beside the store until the step counts.
// SPDX-License-Identifier: Apache-2.0
#include "pipeline/auxiliary_variables.h"

#include <algorithm>
#include <utility>

#include "core/check.h"
#include "kernel/memory_passes.h"

namespace thinwire {

AuxiliaryVariables::AuxiliaryVariables(AuxiliaryForm form)
    : form_(std::move(form)),
      store_({.count = form_.count, .budget = form_.budget, .folder = form_.folder}) {}

bool AuxiliaryVariables::hold(std::span<const uint64_t> ids) const {
  return std::all_of(ids.begin(), ids.end(), [&](uint64_t id) { return store_.find(id); });
}

void AuxiliaryVariables::read(std::span<const uint64_t> ids, std::span<float> out) const {
  THINWIRE_CHECK(out.size() == ids.size() * form_.count,
                 "auxiliary variables of '" + form_.name + "': not a place for each value");
  for (size_t i = 0; i < ids.size(); ++i) {
    const auto found = store_.find(ids[i]);
    THINWIRE_CHECK(found, "auxiliary variables of '" + form_.name + "': none of sample " +
                              std::to_string(ids[i]));
    store_.read(*found, out.subspan(i * form_.count, form_.count));
  }
}

void AuxiliaryVariables::set(std::span<const uint64_t> ids, std::span<const float> activations) {
  Staged& staged = stage(ids, activations.size());
  std::copy(activations.begin(), activations.end(), staged.values.begin());
}

bool AuxiliaryVariables::change(std::span<const uint64_t> ids, std::span<const float> activations,
                                std::span<const float> gradients, double scale) {
  THINWIRE_CHECK(activations.size() == gradients.size(),
                 "auxiliary variables of '" + form_.name + "': gradients of other activations");
  Staged& staged = stage(ids, activations.size());
  const auto step = static_cast<float>(1 / (scale * form_.penalty));
  const auto rate = static_cast<float>(form_.rate);
  target_.resize(activations.size());
  kernel::weighted_sum(1, activations, -step, gradients, target_);
  read(ids, staged.values);
  return kernel::weighted_sum_with_moments(1 - rate, staged.values, rate, target_, staged.values)
      .finite;
}

AuxiliaryVariables::Staged& AuxiliaryVariables::stage(std::span<const uint64_t> ids,
                                                      size_t values) {
  THINWIRE_CHECK(values == ids.size() * form_.count,
                 "auxiliary variables of '" + form_.name + "': not the values of each sample");
  for (const uint64_t id : ids) fresh_ += store_.find(id) ? 0 : 1;
  store_.reserve(fresh_);  // now, so that commit cannot fail
  staged_.push_back({.ids = {ids.begin(), ids.end()}, .values = AlignedVector<float>(values)});
  return staged_.back();
}

// In the order of micro-batches at both sides, so that their saved states are the same too.
void AuxiliaryVariables::commit() {
  for (const Staged& staged : staged_)
    for (size_t i = 0; i < staged.ids.size(); ++i)
      store_.write(staged.ids[i], 0,
                   std::span(staged.values).subspan(i * form_.count, form_.count));
  rollback();
}

void AuxiliaryVariables::rollback() noexcept {
  staged_.clear();
  fresh_ = 0;
}

Status AuxiliaryVariables::load(const StateArrays& arrays) {
  if (Status status = store_.load(arrays); !status) return status;
  rollback();
  return Status::ok();
}

}  // namespace thinwire
