// StageControl: the rules that change the number of SIDCo's stages, and its saved state.
// SPDX-License-Identifier: Apache-2.0
#include "codec/stage_control.h"

#include <algorithm>
#include <cmath>

namespace thinwire {

StageRatios stage_ratios(double density, double first_ratio, int stages) noexcept {
  if (stages <= 1 || density >= first_ratio) return {.first = density, .later = 1};
  return {.first = first_ratio, .later = std::pow(density / first_ratio, 1.0 / (stages - 1))};
}

int max_stages(double density) noexcept {
  // The small number keeps a power of two that was written in decimal from counting one more.
  return std::max(1, static_cast<int>(std::ceil(std::log2(1 / density) - 1e-9)));
}

void StageControl::record(double ratio) noexcept {
  if (rule_.fixed != 0) return;
  next_.ratio_sum += ratio;
  if (++next_.steps < rule_.window) return;
  const double mean = next_.ratio_sum / static_cast<double>(next_.steps);
  next_.steps = 0;
  next_.ratio_sum = 0;
  if (rule_.scan) return;
  if (mean > 1 + rule_.tolerance_high) --next_.stages;
  if (mean < 1 - rule_.tolerance_low) ++next_.stages;
  next_.stages = std::clamp(next_.stages, 1, rule_.max_stages);
}

StateArrays StageControl::save() const {
  if (rule_.fixed != 0) return {};
  const int64_t counts[] = {committed_.stages, committed_.steps};
  const double sums[] = {committed_.ratio_sum};
  return {make_state("stages", std::span<const int64_t>(counts), OnResize::kCopy),
          make_state("ratio_sum", std::span<const double>(sums), OnResize::kCopy)};
}

Status StageControl::load(const StateArrays& arrays) {
  if (rule_.fixed != 0) return Status::ok();
  int64_t counts[2];
  double sums[1];
  if (Status status = copy_state(arrays, "stages", counts); !status) return status;
  if (Status status = copy_state(arrays, "ratio_sum", sums); !status) return status;
  if (counts[0] < 1 || counts[0] > rule_.max_stages || counts[1] < 0 || counts[1] >= rule_.window ||
      !(sums[0] >= 0))
    return Status::fail(ErrorCode::kMismatch, "sidco: the saved stages are out of range");
  next_ = committed_ = {
      .stages = static_cast<int>(counts[0]), .steps = counts[1], .ratio_sum = sums[0]};
  return Status::ok();
}

}  // namespace thinwire
