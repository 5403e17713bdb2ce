// GlobalThreshold: samples signals, averages the samples over steps, and bounds what a step sends.
// SPDX-License-Identifier: Apache-2.0
#include "exchange/state/global_threshold.h"

#include <algorithm>
#include <cmath>

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
// A step that keeps more than kLost targets, or less than 1 / kLost, shows that the signals are not
// of the scale of the average any more.
constexpr double kLost = 1.5;
// The bound on what a step sends, in targets.
constexpr size_t kMostTargets = 2;

}  // namespace

void GlobalThreshold::aim(size_t target) noexcept {
  target_ = target;
  threshold_.reset();
  if (target_ > 0 && !sketch_.empty())
    threshold_ = sketch_.exceeded_by(correction_ * static_cast<double>(target_));
}

std::optional<Quota> GlobalThreshold::offer(std::span<const float> signal, size_t target,
                                            const Call& call, size_t stream) {
  if (target_ == 0 || signal.empty()) return std::nullopt;
  const size_t stretch = std::max<size_t>(1, target_ / kSampledTail);
  sample_.resize(std::max<size_t>(1, signal.size() / stretch));
  const RandomKey key{.seed = call.seed,
                      .use = RandomUse::kCodec,
                      .step = call.step,
                      .stream = static_cast<uint32_t>(stream)};
  kernel::sample_values(signal, random_word(key, 0), sample_);
  sketch_.count(sample_, (signal.size() + sample_.size() / 2) / sample_.size());
  const size_t most = most_now(target);
  offered_ += target;
  if (!threshold_) return std::nullopt;
  return Quota{.threshold = *threshold_, .most = most};
}

// What the bound leaves if every later stream keeps its own target. So the bound holds, and no
// stream may send less than its own target.
size_t GlobalThreshold::most_now(size_t target) const noexcept {
  const size_t later = target_ - std::min(target_, offered_ + target);
  const size_t spent = kept_ + later;
  const size_t bound = kMostTargets * target_;
  return spent < bound ? bound - spent : 0;
}

void GlobalThreshold::commit() noexcept {
  if (offered_ == 0) return rollback();  // this rank sat the step out, or the codec has no target
  const double ratio = static_cast<double>(kept_) / static_cast<double>(offered_);
  const bool lost = threshold_ && (ratio > kLost || kLost * ratio < 1);
  sketch_.average(lost ? 1.0f : kShare);
  if (lost)
    correction_ = 1;
  else if (threshold_)
    correction_ = std::clamp(correction_ * (1 + kGain * (1 - ratio)), 1 / kFar, kFar);
  offered_ = kept_ = 0;
  aim(target_);
}

void GlobalThreshold::rollback() noexcept {
  sketch_.forget();
  offered_ = kept_ = 0;
}

StateArrays GlobalThreshold::save() const {
  return {make_state("magnitudes", sketch_.bins(), OnResize::kCopy),
          make_state("correction", std::span(&correction_, 1), OnResize::kCopy)};
}

Status GlobalThreshold::load(const StateArrays& arrays) {
  std::vector<float> bins(MagnitudeSketch::kBins);
  double correction[1];
  if (Status status = copy_state(arrays, "magnitudes", bins); !status) return status;
  if (Status status = copy_state(arrays, "correction", correction); !status) return status;
  if (!(1 / kFar <= correction[0] && correction[0] <= kFar) ||
      !std::all_of(bins.begin(), bins.end(),
                   [](float bin) { return std::isfinite(bin) && bin >= 0; }))
    return Status::fail(ErrorCode::kMismatch, "global threshold: the saved state is out of range");
  sketch_.set_bins(bins);
  correction_ = correction[0];
  aim(target_);
  return Status::ok();
}

}  // namespace thinwire
