// GlobalThreshold: samples signals, averages the samples over steps, and steers what a step sends.
// SPDX-License-Identifier: Apache-2.0
#include "exchange/state/global_threshold.h"

#include <algorithm>
#include <cmath>
#include <string_view>

#include "codec/sparse_codec.h"
#include "core/random.h"
#include "kernel/value_sample.h"

namespace thinwire {
namespace {

// The sample of a step holds about so many of the values above the threshold. Their number has a
// standard deviation of 6 %, and of about 2 % in the average over steps.
constexpr size_t kSampledTail = 256;
// The weight of a step in the average; the last 7 steps together have 87 %.
constexpr float kShare = 0.25f;
// The part of a step's relative error that the correction takes up.
constexpr double kGain = 0.25;
// The correction stays between 1 / kFar and kFar.
constexpr double kFar = 4;
// A step with more than kLost targets above the threshold, or less than 1 / kLost, shows that the
// signals are not of the scale of the average any more. On resnet20 at a density of 0.01 batches
// alone do that in 2 % of the steps.
constexpr double kLost = 2;
// If the difference is more than so many standard deviations of the sampled number, too.
constexpr double kCertain = 3;
// Targets of two steps that differ by less than this factor have the same shares of streams.
constexpr double kSameTarget = 1.2;
// The target of a stream's threshold is between 1 / kSwing and kSwing times that of a usual step.
constexpr double kSwing = 2;
// How often the interval of these targets is halved; leaves 1/1,365 of a target.
constexpr int kHalvings = 10;
// The bound on what a step sends, in targets.
constexpr size_t kMostTargets = 2;

size_t length_of(const StateArrays& arrays, std::string_view name) {
  const StateArray* array = find_state(arrays, name);
  return array == nullptr ? 0 : array->data.size() / sizeof(double);
}

}  // namespace

void GlobalThreshold::aim(size_t target) noexcept {
  target_ = target;
  threshold_.reset();
  if (target_ == 0 || sketch_.empty()) return;
  const double usual = correction_ * static_cast<double>(target_);
  start_ = sketch_.start_for(usual / kSwing);
  threshold_ = sketch_.exceeded_by(usual, start_);
}

std::optional<Quota> GlobalThreshold::quota_for(std::span<const float> signal, size_t target,
                                                const Call& call, size_t stream) {
  if (target_ == 0 || signal.empty()) return std::nullopt;
  const size_t stretch = std::max<size_t>(1, target_ / kSampledTail);
  sample_.resize(std::max<size_t>(1, signal.size() / stretch));
  const RandomKey key{.seed = call.seed,
                      .use = RandomUse::kCodec,
                      .step = call.step,
                      .stream = static_cast<uint32_t>(stream)};
  kernel::sample_values(signal, random_word(key, 0), sample_);
  each_ = (signal.size() + sample_.size() / 2) / sample_.size();
  sketch_.count(sample_, each_);
  const size_t most = most_now(target);
  offered_ += target;
  values_ += signal.size();
  if (!threshold_) return std::nullopt;
  forecast_.see(stream, sampled_above(*threshold_));
  return Quota{.threshold = threshold_now(), .most = most};
}

// Streams have other shares of 10 % of the values than of 1 %.
bool GlobalThreshold::shares_hold() const noexcept {
  if (shares_target_ == 0) return false;
  const double ratio = static_cast<double>(target_) / static_cast<double>(shares_target_);
  return ratio < kSameTarget && ratio * kSameTarget > 1;
}

double GlobalThreshold::sampled_above(float threshold) const noexcept {
  const auto found = std::count_if(sample_.begin(), sample_.end(),
                                   [=](float value) { return std::abs(value) > threshold; });
  return static_cast<double>(static_cast<size_t>(found) * each_);
}

// The threshold with which this stream, by its sample, and the later ones, by the forecast, keep
// what is left of the target. The smaller values of the sample are dropped.
float GlobalThreshold::threshold_now() noexcept {
  const auto target = static_cast<double>(target_);
  const std::optional<double> later = shares_hold() ? forecast_.to_come(target) : std::nullopt;
  if (!later) return *threshold_;
  const double left = target - static_cast<double>(kept_);
  // Absent, if fewer values are not zero: then none of them is too small.
  const auto threshold_of = [&](double part) {
    return sketch_.exceeded_by(part * correction_ * target, start_).value_or(0);
  };
  const float lowest = threshold_of(kSwing);
  std::erase_if(sample_, [=](float value) { return !(std::abs(value) > lowest); });
  double low = 1 / kSwing, high = kSwing;
  for (int halving = 0; halving < kHalvings; ++halving) {
    const double part = (low + high) / 2;
    const double kept = sampled_above(threshold_of(part)) + part * *later;
    (kept > left ? high : low) = part;
  }
  return threshold_of((low + high) / 2);
}

// What the bound leaves if every later stream keeps its own target. So the bound holds, and no
// stream may send less than its own target.
size_t GlobalThreshold::most_now(size_t target) const noexcept {
  const size_t later = target_ - std::min(target_, offered_ + target);
  const size_t spent = kept_ + later;
  const size_t bound = kMostTargets * target_;
  return spent < bound ? bound - spent : 0;
}

// Where the target is more than half of the values, not even all of them are kLost targets. So the
// limit is then half way from the target to all values.
bool GlobalThreshold::is_lost(double above) const noexcept {
  const auto target = static_cast<double>(offered_);
  const double all = static_cast<double>(values_) / target;
  const double ratio = above / target;
  const double variance = target * std::max(1.0, target / kSampledTail);
  const double far = (above - target) / kCertain;
  return (ratio > std::min(kLost, (1 + all) / 2) || kLost * ratio < 1) && far * far > variance;
}

void GlobalThreshold::commit() noexcept {
  if (offered_ == 0) return rollback();  // this rank sat the step out, or the codec has no target
  const double above = forecast_.seen();
  const bool lost = threshold_ && is_lost(above);
  sketch_.average(lost ? 1.0f : kShare);
  if (lost) {
    correction_ = 1;
    forecast_.forget();  // the shares of such a step say nothing about the next one's
  } else if (threshold_) {
    const double ratio = above / static_cast<double>(offered_);
    correction_ = std::clamp(correction_ * (1 + kGain * (1 - ratio)), 1 / kFar, kFar);
    forecast_.average(shares_hold() ? kShare : 1);
    shares_target_ = target_;
  }
  offered_ = values_ = kept_ = 0;
  aim(target_);
}

void GlobalThreshold::rollback() noexcept {
  sketch_.forget();
  forecast_.forget();
  offered_ = values_ = kept_ = 0;
}

StateArrays GlobalThreshold::save() const {
  const auto shares_target = static_cast<int64_t>(shares_target_);
  return {make_state("magnitudes", sketch_.bins(), OnResize::kCopy),
          make_state("correction", std::span(&correction_, 1), OnResize::kCopy),
          make_state("shares", forecast_.shares(), OnResize::kCopy),
          make_state("shares_target", std::span(&shares_target, 1), OnResize::kCopy)};
}

Status GlobalThreshold::load(const StateArrays& arrays) {
  std::vector<float> bins(MagnitudeSketch::kBins);
  double correction[1];
  if (Status status = copy_state(arrays, "magnitudes", bins); !status) return status;
  if (Status status = copy_state(arrays, "correction", correction); !status) return status;
  // States of earlier versions have no shares.
  std::vector<double> shares(length_of(arrays, "shares"));
  int64_t shares_target[1] = {0};
  if (find_state(arrays, "shares") != nullptr) {
    if (Status status = copy_state(arrays, "shares", shares); !status) return status;
    if (Status status = copy_state(arrays, "shares_target", shares_target); !status) return status;
  }
  if (!(0 <= shares_target[0] && 1 / kFar <= correction[0] && correction[0] <= kFar) ||
      !std::all_of(bins.begin(), bins.end(),
                   [](float bin) { return std::isfinite(bin) && bin >= 0; }) ||
      !std::all_of(shares.begin(), shares.end(),
                   [](double share) { return 0 <= share && share <= 1; }))
    return Status::fail(ErrorCode::kMismatch, "global threshold: the saved state is out of range");
  forecast_.set_shares(shares);  // may fail for want of memory, and then changes nothing
  rollback();
  sketch_.set_bins(bins);
  correction_ = correction[0];
  shares_target_ = static_cast<size_t>(shares_target[0]);
  aim(target_);
  return Status::ok();
}

}  // namespace thinwire
