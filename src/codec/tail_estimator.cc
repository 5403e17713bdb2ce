// TailEstimator: fits the stages one after another and chooses the number of stages.
// SPDX-License-Identifier: Apache-2.0
#include "codec/tail_estimator.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "codec/sparse_codec.h"
#include "codec/stage_control.h"
#include "kernel/select.h"

namespace thinwire {
namespace {

constexpr float kHint = 0.9f;     // of a threshold: lists a quarter more where it was just right
constexpr double kAlike = 1e-12;  // variance over squared mean: a spread of a millionth

// Two chunks' sums, in order.
void append(kernel::TailMoments& total, const kernel::TailMoments& chunk) noexcept {
  total.count += chunk.count;
  total.sum += chunk.sum;
  total.square_sum += chunk.square_sum;
  total.smallest = std::min(total.smallest, chunk.smallest);
}

}  // namespace

kernel::TailMoments TailEstimator::tail(float threshold) {
  return kernel::tail_moments(values_, threshold, largest_);
}

// Chunk by chunk of the list, without the list.
kernel::TailMoments TailEstimator::tail_of_list(float threshold) {
  std::vector<uint32_t> positions(kernel::kTailChunk);
  std::vector<float> kept(kernel::kTailChunk);
  kernel::TailMoments total{.smallest = std::numeric_limits<float>::infinity()};
  for (size_t begin = 0; begin < values_.size();) {
    const auto got = kernel::select_above(values_, begin, threshold, positions, kept);
    append(total, kernel::tail_moments(std::span(kept).first(got.kept), threshold, largest_));
    begin = got.next;
  }
  return total;
}

bool TailEstimator::collect(float threshold, ExceedanceList& list) {
  return list.collect(values_, threshold, list_limit());
}

bool TailEstimator::collect_with_tail(float threshold, ExceedanceList& list, float tail_threshold,
                                      std::optional<kernel::TailMoments>& tail) {
  tail.emplace();
  return list.collect(values_, threshold, list_limit(), tail_threshold, largest_, *tail);
}

size_t TailEstimator::count_above(float threshold) {
  return kernel::count_above(values_, threshold);
}

double TailEstimator::log_sum(double guard, double unit) {
  return kernel::log_sum(values_, guard, unit);
}

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
      return to_threshold(exponential_threshold(mean_, ratio));
    case TailLaw::kPareto:
      return to_threshold(pareto_threshold(mean_, variance_, ratio));
    case TailLaw::kGammaPareto:
      break;
  }
  if (!gamma_) {
    // ln(a + epsilon) of magnitudes over their norm, taken in units of the mean; the authors' guard
    // is the float64 machine epsilon, 2^-52.
    constexpr double kGuard = std::numeric_limits<double>::epsilon();
    const double logs = log_sum(kGuard * norm_, mean_);
    gamma_ = fit_gamma(mean_, -logs / static_cast<double>(values_.size()));
  }
  return to_threshold(method_.closed_gamma ? gamma_threshold_closed(*gamma_, ratio)
                                           : gamma_threshold(*gamma_, ratio));
}

const kernel::TailMoments& TailEstimator::first_tail() {
  if (!tail_) tail_ = tail(first_threshold(method_.first_ratio));
  return *tail_;
}

// The tail and, in the same read of memory, the list of what exceeds `hint`. False if there is
// none.
bool TailEstimator::first_tail_and_list(float hint, ExceedanceList& list) {
  if (tail_ || hint == 0) return false;
  return collect_with_tail(hint, list, first_threshold(method_.first_ratio), tail_);
}

std::optional<float> TailEstimator::next_threshold(const kernel::TailMoments& tail, float threshold,
                                                   double ratio) const {
  if (tail.count < kFew) return std::nullopt;
  const auto count = static_cast<double>(tail.count);
  const double excess = tail.sum / count;
  const double variance = (tail.square_sum - tail.sum * excess) / (count - 1);
  const double least = tail.smallest;
  const double mean = excess - (least - threshold);  // of a - mn
  if (!(variance > kAlike * excess * excess) || !(mean > 0)) return std::nullopt;
  return to_threshold(least + (method_.law == TailLaw::kExponential
                                   ? exponential_threshold(mean, ratio)
                                   : pareto_threshold(mean, variance, ratio)));
}

// A list costs 8 bytes per entry, 2 bytes per value at this limit. The share above the second
// threshold is first_ratio times a later ratio; only tails far from the law keep more.
size_t TailEstimator::list_limit() const noexcept { return values_.size() / 4 + kFewest; }

TailEstimator::Estimate TailEstimator::estimate(int stages, ExceedanceList& list) {
  const StageRatios ratios = stage_ratios(method_.density, method_.first_ratio, stages);
  const float first = first_threshold(ratios.first);
  if (stages <= 1 || method_.density >= method_.first_ratio) return {.threshold = first};
  const bool hinted = hint_stages_ == stages && first_tail_and_list(hint_, list);
  const auto second = next_threshold(first_tail(), first, ratios.later);
  if (!second) return {.threshold = first};
  const bool listed = hinted && hint_ <= *second;
  hint_stages_ = stages;
  hint_ = kHint * *second;
  if (!listed && stages == 2) return {.threshold = *second};  // the caller's pass selects
  if (!listed && !collect(*second, list))
    return {.threshold = stream_stages(stages, *second, ratios.later)};
  return {.threshold = list_stages(stages, *second, ratios.later, list), .listed = true};
}

// Stages 3 and later; leaves what the last one keeps. `list` holds at least what the second kept.
float TailEstimator::list_stages(int stages, float second, double ratio,
                                 ExceedanceList& list) const {
  list.compact(second);
  float threshold = second;
  for (int stage = 3; stage <= stages; ++stage) {
    const auto next =
        next_threshold(kernel::tail_moments(list.values(), threshold, largest_), threshold, ratio);
    if (!next) break;
    threshold = *next;
    list.compact(threshold);
  }
  return threshold;
}

// The same for a tail too long to list: a read of memory for each stage.
float TailEstimator::stream_stages(int stages, float second, double ratio) {
  float threshold = second;
  for (int stage = 3; stage <= stages; ++stage) {
    const auto next = next_threshold(tail_of_list(threshold), threshold, ratio);
    if (!next) break;
    threshold = *next;
  }
  return threshold;
}

// How many `stages` stages keep of a list of at least what the second kept.
size_t TailEstimator::count_from_list(int stages, float second, double ratio,
                                      const ExceedanceList& list) {
  scratch_.resize(std::max(scratch_.size(), list.size()));
  const auto compact = [&](std::span<const float> from, float threshold) {
    return std::span<const float>(
        scratch_.data(), kernel::compact_above(from, {}, threshold, std::span(scratch_), {}));
  };
  float threshold = second;
  auto kept = compact(list.values(), threshold);
  for (int stage = 3; stage <= stages; ++stage) {
    const auto next =
        next_threshold(kernel::tail_moments(kept, threshold, largest_), threshold, ratio);
    if (!next) break;
    threshold = *next;
    kept = compact(kept, threshold);
  }
  return kept.size();
}

TailEstimator::Choice TailEstimator::nearest(int most, size_t target, ExceedanceList& list) {
  const float single = first_threshold(method_.density);
  if (method_.density >= method_.first_ratio) return {1, {.threshold = single}};
  const float first = first_threshold(method_.first_ratio);
  const auto ratio = [&](int stages) {
    return stage_ratios(method_.density, method_.first_ratio, stages).later;
  };
  const auto second = [&](int stages) {
    return next_threshold(first_tail(), first, ratio(stages));
  };
  // The more stages, the lower the second threshold: one list serves all.
  const bool hinted = first_tail_and_list(scan_hint_, list);
  const auto lowest = second(most);
  const bool listed = lowest && ((hinted && scan_hint_ <= *lowest) || collect(*lowest, list));
  scan_hint_ = lowest ? kHint * *lowest : 0;
  const auto count = [&](int stages) {
    if (stages == 1)
      return listed && single >= *lowest ? kernel::count_above(list.values(), single)
                                         : count_above(single);
    if (!lowest) return first_tail().count;
    if (listed) return count_from_list(stages, *second(stages), ratio(stages), list);
    return count_above(stream_stages(stages, *second(stages), ratio(stages)));
  };
  int best = 1;
  size_t shortest = std::numeric_limits<size_t>::max();
  for (int stages = 1; stages <= most; ++stages) {
    const size_t kept = count(stages);
    const size_t distance = kept > target ? kept - target : target - kept;
    if (kept == 0 || distance >= shortest) continue;
    shortest = distance;
    best = stages;
  }
  if (best == 1 || !listed) return {best, estimate(best, list)};
  hint_stages_ = best;
  hint_ = kHint * *second(best);
  return {best, {list_stages(best, *second(best), ratio(best), list), true}};
}

}  // namespace thinwire
