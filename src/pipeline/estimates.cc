// Estimates: finds them, and holds the changes of a step until it counts.
// SPDX-License-Identifier: Apache-2.0
#include "pipeline/estimates.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "core/check.h"
#include "core/checksum.h"
#include "kernel/axpy.h"

namespace thinwire {
namespace {

constexpr const char* kHistory = "history";

EstimateForm form_of(const BoundaryPlan& plan) {
  const bool one_sample = plan.estimates->key == EstimateKey::kSample;
  return {.count = one_sample ? plan.sample_count : plan.batch_count(),
          .format = plan.estimates->cache,
          .budget = plan.spec.cache_budget,
          .folder = plan.spec.spill_folder};
}

}  // namespace

Estimates::Estimates(const BoundaryPlan& plan)
    : plan_(plan),
      rule_(*plan.estimates),
      store_(form_of(plan)),
      values_(plan.batch_count() * plan.spec.micro_batches),
      parts_(plan.spec.micro_batches) {
  taken_.reserve(plan.spec.samples * plan.spec.micro_batches);
}

Estimates::Recalled& Estimates::recall(const Visit& visit, size_t samples) {
  THINWIRE_CHECK(rule_.key == EstimateKey::kSlot || visit.ids.size() == samples,
                 plan_.origin() + "needs an id of each sample");
  Part& part = parts_[visit.micro_batch];
  part.keys.clear();
  part.kept = false;
  part.recalled.order.resize(samples);
  std::iota(part.recalled.order.begin(), part.recalled.order.end(), 0u);
  part.recalled.values = std::span(values_).subspan(visit.micro_batch * plan_.batch_count(),
                                                    samples * plan_.sample_count);
  kernel::fill(part.recalled.values, -0.0f);
  if (rule_.key == EstimateKey::kSample)
    find_samples(visit, samples, part);
  else
    find_whole(visit, part);
  return part.recalled;
}

void Estimates::find_samples(const Visit& visit, size_t samples, Part& part) {
  Recalled& recalled = part.recalled;
  for (const uint64_t id : visit.ids) take(id, "sample");
  const auto has_estimate = [&](uint32_t place) {
    return store_.find(visit.ids[place]).has_value();
  };
  const auto border =
      std::stable_partition(recalled.order.begin(), recalled.order.end(), has_estimate);
  recalled.held = static_cast<size_t>(border - recalled.order.begin());
  for (size_t i = 0; i < samples; ++i) {
    part.keys.push_back(visit.ids[recalled.order[i]]);
    if (i < recalled.held)
      store_.read(*store_.find(part.keys[i]),
                  recalled.values.subspan(i * plan_.sample_count, plan_.sample_count));
  }
}

void Estimates::find_whole(const Visit& visit, Part& part) {
  const uint64_t key = key_of(visit);
  take(key, "batch");
  part.keys.push_back(key);
  part.tag = rule_.key == EstimateKey::kBatch ? checksum(std::as_bytes(visit.ids)) : 0;
  const auto found = store_.find(key);
  if (found && store_.tag(*found) != part.tag)
    throw Error(ErrorCode::kMismatch, plan_.origin() + "batch " + std::to_string(visit.batch) +
                                          " has other samples than at its first visit; with "
                                          "key=batch a batch has to keep them, in their order");
  if (found) store_.read(*found, part.recalled.values);
  const bool held = found || rule_.key == EstimateKey::kSlot;
  part.recalled.held = held ? part.recalled.order.size() : 0;
}

uint64_t Estimates::key_of(const Visit& visit) const {
  uint64_t key = rule_.key == EstimateKey::kBatch ? visit.batch : 0;
  const bool too_large = __builtin_mul_overflow(key, uint64_t{plan_.spec.micro_batches}, &key) ||
                         __builtin_add_overflow(key, uint64_t{visit.micro_batch}, &key);
  THINWIRE_CHECK(!too_large, plan_.origin() + "batch id too large");
  return key;
}

void Estimates::take(uint64_t key, const char* what) {
  const auto at = std::lower_bound(taken_.begin(), taken_.end(), key);
  THINWIRE_CHECK(at == taken_.end() || *at != key,
                 plan_.origin() + what + " id " + std::to_string(key) + " comes twice in a step");
  taken_.insert(at, key);
}

void Estimates::remember(const Visit& visit, uint64_t sum) {
  Part& part = parts_[visit.micro_batch];
  for (const uint64_t key : part.keys) fresh_ += store_.find(key) ? 0 : 1;
  store_.reserve(fresh_);
  part.sum = sum;
  part.kept = true;
}

// In order of micro-batches, so that first visits are numbered alike on both ends.
void Estimates::commit() {
  for (Part& part : parts_) {
    if (!part.kept) continue;
    const size_t count = part.recalled.values.size() / part.keys.size();
    for (size_t i = 0; i < part.keys.size(); ++i)
      store_.write(part.keys[i], part.tag, part.recalled.values.subspan(i * count, count));
    const std::array<uint64_t, 2> both = {history_, part.sum};
    history_ = checksum(std::as_bytes(std::span(both)));
  }
  rollback();
}

void Estimates::rollback() noexcept {
  for (Part& part : parts_) part.kept = false;
  taken_.clear();
  fresh_ = 0;
}

void Estimates::invalidate() {
  rollback();
  store_.clear();
  history_ = 0;
}

StateArrays Estimates::save() const {
  const auto history = static_cast<int64_t>(history_);
  StateArrays arrays = store_.save();
  arrays.push_back(make_state(kHistory, std::span<const int64_t>(&history, 1), OnResize::kCopy));
  return arrays;
}

Status Estimates::load(const StateArrays& arrays) {
  int64_t history = 0;
  if (Status status = copy_state(arrays, kHistory, std::span(&history, 1)); !status) return status;
  if (Status status = store_.load(arrays); !status) return status;
  history_ = static_cast<uint64_t>(history);
  rollback();
  return Status::ok();
}

}  // namespace thinwire
