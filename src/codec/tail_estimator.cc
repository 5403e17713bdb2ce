// Stages, and the choice among them.
// SPDX-License-Identifier: Apache-2.0
#include "codec/tail_estimator.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "codec/stage_control.h"
#include "kernel/select.h"

namespace thinwire {
namespace {

constexpr double kAlike = 1e-12;  // variance over squared mean: a spread of a millionth

// The largest float that is not above `threshold`: |x| > threshold and |x| > it are the same for floats.
float to_float(double threshold) noexcept {
  if (threshold >= std::numeric_limits<float>::max()) return std::numeric_limits<float>::max();
  const auto rounded = static_cast<float>(threshold);
  return rounded > threshold ? std::nextafter(rounded, 0.0f) : rounded;
}

// Two chunks' sums, in order.
void append(kernel::TailMoments& total, const kernel::TailMoments& chunk) noexcept {
  total.count += chunk.count;
  total.sum += chunk.sum;
  total.square_sum += chunk.square_sum;
  total.smallest = std::min(total.smallest, chunk.smallest);
}

// tail_moments of the list of values above `threshold`, the same bits, without the list.
kernel::TailMoments streamed_tail(std::span<const float> values, float threshold, float largest) {
  std::vector<uint32_t> positions(kernel::kTailChunk);
  std::vector<float> kept(kernel::kTailChunk);
  kernel::TailMoments total{.smallest = std::numeric_limits<float>::infinity()};
  for (size_t begin = 0; begin < values.size();) {
    const auto got = kernel::select_above(values, begin, threshold, positions, kept);
    append(total, kernel::tail_moments(std::span(kept).first(got.kept), threshold, largest));
    begin = got.next;
  }
  return total;
}

}  // namespace

bool TailEstimator::begin(std::span<const float> values, const Moments& moments) {
  values_ = values;
  gamma_.reset();
  tail_.reset();
  if (values.size() < kFewest) return false;
  const auto count = static_cast<double>(values.size());
  mean_ = moments.abs_sum / count;
  variance_ = (moments.square_sum - moments.abs_sum * mean_) / (count - 1);
  norm_ = std::sqrt(moments.square_sum);
  largest_ = moments.abs_max;
  return variance_ > kAlike * mean_ * mean_;
}

float TailEstimator::first_threshold(double ratio) {
  switch (method_.law) {
    case TailLaw::kExponential:
      return to_float(exponential_threshold(mean_, ratio));
    case TailLaw::kPareto:
      return to_float(pareto_threshold(mean_, variance_, ratio));
    case TailLaw::kGammaPareto:
      break;
  }
  if (!gamma_) {
    // ln(a + 2.2e-16) of magnitudes over their norm, taken in units of the mean.
    const double logs = kernel::log_sum(values_, 2.2e-16 * norm_, mean_);
    gamma_ = fit_gamma(mean_, -logs / static_cast<double>(values_.size()));
  }
  return to_float(method_.closed_gamma ? gamma_threshold_closed(*gamma_, ratio)
                                       : gamma_threshold(*gamma_, ratio));
}

const kernel::TailMoments& TailEstimator::first_tail() {
  if (!tail_) tail_ = kernel::tail_moments(values_, first_threshold(method_.first_ratio), largest_);
  return *tail_;
}

std::optional<float> TailEstimator::next_threshold(const kernel::TailMoments& tail, float threshold,
                                                   double ratio, TailLaw law) {
  if (tail.count < kFew) return std::nullopt;
  const auto count = static_cast<double>(tail.count);
  const double excess = tail.sum / count;
  const double variance = (tail.square_sum - tail.sum * excess) / (count - 1);
  const double least = tail.smallest;
  const double mean = excess - (least - threshold);  // of a - mn
  if (!(variance > kAlike * excess * excess) || !(mean > 0)) return std::nullopt;
  return to_float(least + (law == TailLaw::kExponential ? exponential_threshold(mean, ratio)
                                                        : pareto_threshold(mean, variance, ratio)));
}

// A list costs 8 bytes per entry, 2 bytes per value at this limit. The share above the second threshold
// is first_ratio times a later ratio; only tails far from the law keep more.
size_t TailEstimator::list_limit() const noexcept { return values_.size() / 4 + kFewest; }

TailEstimator::Estimate TailEstimator::estimate(int stages, ExceedanceList& list) {
  const StageRatios ratios = stage_ratios(method_.density, method_.first_ratio, stages);
  float threshold = first_threshold(ratios.first);
  if (stages <= 1 || method_.density >= method_.first_ratio) return {.threshold = threshold};
  const auto second = next_threshold(first_tail(), threshold, ratios.later);
  if (!second || stages == 2) return {.threshold = second.value_or(threshold)};
  threshold = *second;
  if (!list.collect(values_, threshold, list_limit()))
    return {.threshold = stream_stages(stages, 3, threshold, ratios.later)};
  for (int stage = 3; stage <= stages; ++stage) {
    const auto next = next_threshold(kernel::tail_moments(list.values(), threshold, largest_),
                                     threshold, ratios.later);
    if (!next) break;
    threshold = *next;
    list.compact(threshold);
  }
  return {.threshold = threshold, .listed = true};
}

// The later stages of a tail too long to list: a read of memory each.
float TailEstimator::stream_stages(int stages, int stage, float threshold, double ratio) {
  for (; stage <= stages; ++stage) {
    const auto next = next_threshold(streamed_tail(values_, threshold, largest_), threshold, ratio);
    if (!next) break;
    threshold = *next;
  }
  return threshold;
}

// How many `stages` stages keep, given those that the second kept.
size_t TailEstimator::count_from_list(int stages, float threshold, double ratio,
                                      const ExceedanceList& list) {
  scratch_.resize(std::max(scratch_.size(), list.size()));
  std::span<const float> kept = list.values();
  for (int stage = 3; stage <= stages; ++stage) {
    const auto next =
        next_threshold(kernel::tail_moments(kept, threshold, largest_), threshold, ratio);
    if (!next) break;
    threshold = *next;
    kept = std::span(scratch_).first(kernel::compact_above(kept, {}, threshold, scratch_, {}));
  }
  return kept.size();
}

int TailEstimator::nearest(int most, size_t target, ExceedanceList& list) {
  if (method_.density >= method_.first_ratio) return 1;  // later stages would keep everything
  const auto count = [&](float threshold) { return kernel::count_above(values_, threshold); };
  std::vector<size_t> kept(static_cast<size_t>(most) + 1);  // by stages
  kept[1] = count(first_threshold(method_.density));
  // From the most stages to the fewest: the fewer, the higher the second threshold, so that one list
  // shrinks from each to the next.
  bool listed = false;
  for (int stages = most; stages >= 2; --stages) {
    const StageRatios ratios = stage_ratios(method_.density, method_.first_ratio, stages);
    const auto second = next_threshold(first_tail(), first_threshold(ratios.first), ratios.later);
    if (!second) {
      kept[stages] = first_tail().count;
      continue;
    }
    if (!listed && !list.collect(values_, *second, list_limit())) {
      kept[stages] = count(stages == 2 ? *second : stream_stages(stages, 3, *second, ratios.later));
      continue;
    }
    listed = true;
    list.compact(*second);
    kept[stages] = count_from_list(stages, *second, ratios.later, list);
  }
  const auto distance = [&](int stages) {
    if (kept[stages] == 0) return std::numeric_limits<size_t>::max();
    return kept[stages] > target ? kept[stages] - target : target - kept[stages];
  };
  int best = 1;
  for (int stages = 2; stages <= most; ++stages)
    if (distance(stages) < distance(best)) best = stages;
  return best;
}

}  // namespace thinwire
