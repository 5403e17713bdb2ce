// residual: what one message could not carry is added to the next gradient (error feedback).
//
//   u_t = g_t + r_{t-1},   r_t = u_t - decode(encode(u_t)),   r_0 = 0   [Seide et al., Interspeech
//   2014; Karimireddy et al., ICML 2019]
//
// Two buffers of 4 bytes per value: the committed residual, which a step only reads, and u, which
// the encoder turns into the next residual where it lies. Commit swaps them; rollback has nothing
// to undo.
// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "core/aligned.h"
#include "core/check.h"
#include "feedback/feedback_rules.h"
#include "kernel/vector_moments.h"

namespace thinwire {
namespace {

constexpr const char* kArray = "residual";

class Residual final : public Feedback {
 public:
  explicit Residual(size_t count) : committed_(count), next_(count) {}

  Signal prepare(std::span<const float> gradient, const Call& /*call*/) override {
    THINWIRE_CHECK(gradient.size() == next_.size(),
                   "feedback 'residual': the gradient has another length");
    const Moments moments = kernel::add_with_moments(gradient, committed_, next_);
    prepared_ = true;
    return {.values = next_, .fresh = gradient, .moments = moments};
  }

  std::span<float> rest() noexcept override { return next_; }

  void commit() override {
    THINWIRE_CHECK(prepared_, "feedback 'residual': commit without prepare");
    std::swap(committed_, next_);
    prepared_ = false;
  }

  void rollback() override { prepared_ = false; }

  StateArrays save() const override {
    return {make_state(kArray, std::span<const float>(committed_), OnResize::kOwedToMean)};
  }

  Status load(const StateArrays& arrays) override {
    Status status = copy_state(arrays, kArray, next_);
    if (!status) return status;
    std::swap(committed_, next_);
    prepared_ = false;
    return status;
  }

 private:
  AlignedVector<float> committed_;
  AlignedVector<float> next_;
  bool prepared_ = false;
};

}  // namespace

const FeedbackEntry& residual_entry() {
  static const FeedbackEntry entry{
      .name = "residual",
      .summary = "adds what was not sent to the next gradient",
      .paper = "Seide et al., Interspeech 2014",
      .options = {},
      .make = [](const Options& /*options*/, const StreamSpec& stream) {
        return std::make_unique<Residual>(stream.count());
      }};
  return entry;
}

}  // namespace thinwire
