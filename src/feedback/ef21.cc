// ef21: sends changes of an estimate that everybody follows [Richtarik, Sokolov and Fatkhullin,
// NeurIPS 2021].
//
//   rank i:    c_i = decode(encode(g_i - h_i)),   h_i <- h_i + c_i,   h_i = 0 at first
//   everybody: H <- H + (1/n) sum of c_i,          the mean gradient is H
//
// H is the mean of the h_i, so what a step's mean brings is the estimate, not what was sent.
// Nothing is owed: g_i - h_i is formed anew from each gradient. Needs a codec whose error is a
// share of its input (top-k, a quantiser with a scale), and gradients that change slowly: large
// batches.
//
// What was sent is g - h minus what is left: where nothing was sent h stays as it is, bit for bit,
// and where an exact value was sent h takes the sum that H takes in. H is added to once a step that
// counts, on every rank the same.
//
// Three buffers of 4 bytes per value: h, g - h which becomes the next h where it lies, and H.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "core/aligned.h"
#include "feedback/feedback_rules.h"
#include "feedback/follows_ranks.h"
#include "feedback/kept_vector.h"
#include "feedback/step_guard.h"
#include "kernel/memory_passes.h"

namespace thinwire {
namespace {

constexpr const char* kOwn = "estimate";
constexpr const char* kMean = "mean_estimate";

class Ef21 final : public Feedback, public FollowsRanks {
 public:
  explicit Ef21(size_t count) : own_(count), mean_(count), guard_("ef21", count) {}

  Signal prepare(std::span<const float> gradient, const Call& /*call*/) override {
    guard_.prepare(gradient.size());
    return form(gradient, 0);
  }
  std::optional<Signal> prepare_part(std::span<const float> gradient, size_t begin,
                                     const Call& /*call*/) override {
    guard_.prepare_part(begin, gradient.size());
    return form(gradient, begin);
  }

  // H lacks it, so h is what is too large: the next g - h has it.
  bool owe(std::span<const float> debt) override {
    own_.add(-1, debt);
    return true;
  }

  std::span<float> rest() noexcept override { return own_.next; }

  void sent(std::span<const float> gradient, size_t begin, size_t count) override {
    guard_.sent(gradient.size(), begin, count);
    kernel::advance_estimate(std::span(own_.now).subspan(begin, count),
                             gradient.subspan(begin, count),
                             std::span(own_.next).subspan(begin, count));
  }

  void receive(std::span<float> mean) override {
    guard_.receive(mean.size());
    kernel::add_and_copy(mean_, mean);
  }

  void commit() override {
    guard_.commit_all_sent();
    own_.commit();
  }
  void rollback() override { guard_.rollback(); }

  // Other ranks start from the mean of the h_i: the mean of theirs is H as before.
  StateArrays save() const override {
    return {own_.write(kOwn), make_state(kMean, std::span<const float>(mean_), OnResize::kShared)};
  }
  bool shares_state() const noexcept override { return true; }
  size_t held_bytes() const override { return own_.held_bytes() + mean_.size() * sizeof(float); }

  // The estimates of ranks that are gone are part of H, and those of new ranks are not: so all
  // ranks begin with H, whose mean over any ranks is H, and no message is needed.
  void follow_ranks(size_t /*before*/, size_t /*now*/) override {
    std::copy(mean_.begin(), mean_.end(), own_.now.begin());
  }
  Status load(const StateArrays& arrays) override {
    if (Status status = own_.read(arrays, kOwn); !status) return status;
    if (Status status = copy_state(arrays, kMean, mean_); !status) return status;
    own_.commit();
    guard_.rollback();
    return Status::ok();
  }

 private:
  Signal form(std::span<const float> gradient, size_t begin) {
    const auto now = std::span(own_.now).subspan(begin, gradient.size());
    const auto next = std::span(own_.next).subspan(begin, gradient.size());
    const Moments moments = kernel::weighted_sum_with_moments(1, gradient, -1, now, next);
    return {.values = next, .fresh = {}, .moments = moments};
  }

  KeptVector own_;
  AlignedVector<float> mean_;  // changed by receive alone, when the step counts already
  StepGuard guard_;
};

}  // namespace

const FeedbackEntry& ef21_entry() {
  static const FeedbackEntry entry{
      .name = "ef21",
      .summary = "sends changes of an estimate of the gradient that all ranks follow",
      .paper = "Richtarik et al., NeurIPS 2021",
      .options = {},
      .make = [](const Options& /*options*/, const StreamSpec& stream) {
        return std::make_unique<Ef21>(stream.count());
      }};
  return entry;
}

}  // namespace thinwire
