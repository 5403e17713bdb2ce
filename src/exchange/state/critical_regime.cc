// CriticalRegime: adds up means, compares the norms of windows, and is saved in the middle of one.
// SPDX-License-Identifier: Apache-2.0
#include "exchange/state/critical_regime.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <cmath>
#include <limits>
#include <memory>
#include <string>

#include "core/number_text.h"
#include "exchange/state/stream_keys.h"
#include "kernel/add_floats.h"
#include "kernel/vector_moments.h"
#include "stream/memory_slot.h"

namespace thinwire {

CriticalRegime::CriticalRegime(size_t count, double eta, uint64_t interval, uint64_t window)
    : count_(count), eta_(eta), interval_(interval), window_(window) {
  assert(0 < window && window <= interval);
}

bool CriticalRegime::in_window() const noexcept {
  return steps_ + window_ >= interval_ || (measures_first_window() && steps_ < window_);
}

void CriticalRegime::add(std::span<const float> part, size_t begin) {
  if (!in_window()) return;
  sum_.resize(count_);
  kernel::add_floats(std::as_bytes(part), 1.0f, std::span(sum_).subspan(begin, part.size()));
}

double CriticalRegime::take_norm() noexcept {
  const double norm = std::sqrt(kernel::moments(sum_).square_sum);
  sum_ = {};
  return norm;
}

// A sum beyond the largest float compares as critical.
void CriticalRegime::end_step() {
  ++steps_;
  if (measures_first_window() && steps_ == window_) norm_ = take_norm();
  if (steps_ < interval_) return;
  const double norm = take_norm();
  if (norm_ >= 0) critical_ = !(std::abs(norm_ - norm) < eta_ * norm_);
  norm_ = std::isfinite(norm) ? norm : std::numeric_limits<double>::max();
  steps_ = 0;
}

StateArrays CriticalRegime::save() const {
  const std::array<int64_t, 4> counts = {critical_ ? 1 : 0, static_cast<int64_t>(steps_),
                                         static_cast<int64_t>(interval_),
                                         static_cast<int64_t>(window_)};
  return {make_state("counts", counts, OnResize::kShared),
          make_state("norm", std::span(&norm_, 1), OnResize::kShared),
          make_state("sum", std::span<const float>(sum_), OnResize::kShared)};
}

// The regime goes on. A norm and a sum of windows of another length are of no use.
Status CriticalRegime::load(const StateArrays& arrays) {
  std::array<int64_t, 4> counts{};
  double norm[1];
  if (Status status = copy_state(arrays, "counts", counts); !status) return status;
  if (Status status = copy_state(arrays, "norm", norm); !status) return status;
  std::vector<float> sum;  // empty, or of all values
  if (!copy_state(arrays, "sum", std::span<float>(sum))) sum.resize(count_);
  if (Status status = copy_state(arrays, "sum", std::span<float>(sum)); !status) return status;
  const auto [critical, steps, interval, window] = counts;
  if (critical < 0 || critical > 1 || steps < 0 || steps >= interval || !std::isfinite(norm[0]))
    return Status::fail(ErrorCode::kMismatch, "critical regime: the saved state is out of range");
  const bool same =
      static_cast<uint64_t>(interval) == interval_ && static_cast<uint64_t>(window) == window_;
  critical_ = critical == 1;
  steps_ = same ? static_cast<uint64_t>(steps) : 0;
  norm_ = same ? norm[0] : -1;
  sum_ = same ? std::move(sum) : std::vector<float>();
  return Status::ok();
}

// The window is an epoch, as published, or the interval where that is shorter or in steps.
CriticalRegime* open_regime(const CodecSchedule& schedule, uint64_t step, uint64_t steps_per_epoch,
                            const StreamSpec& stream, Store& store) {
  const auto rule = schedule.regime_rule(step, steps_per_epoch);
  if (!rule) return nullptr;
  const size_t count = stream.count();
  const uint64_t interval = rule->interval.steps(steps_per_epoch);
  const uint64_t epoch = std::max<uint64_t>(steps_per_epoch, 1);
  const uint64_t window = rule->interval.in_steps ? interval : std::min(interval, epoch);
  const std::string method = "accordion: " + shortest(rule->eta) + " " + std::to_string(interval) +
                             " " + std::to_string(window) + " for " + std::to_string(count);
  return &open_memory<CriticalRegime>(store, regime_key(stream.name), method, [&] {
    return std::make_unique<CriticalRegime>(count, rule->eta, interval, window);
  });
}

}  // namespace thinwire
