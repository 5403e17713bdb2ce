// none: the gradient as it is; what a message could not carry is lost.
// SPDX-License-Identifier: Apache-2.0
#include <memory>
#include <utility>

#include "core/check.h"
#include "feedback/feedback_rules.h"
#include "feedback/memory_place.h"

namespace thinwire {
namespace {

class None final : public Feedback {
 public:
  None(size_t count, SharedPlace place) : count_(count), place_(std::move(place)) {}

  Signal prepare(std::span<const float> gradient, const Call& /*call*/) override {
    THINWIRE_CHECK(gradient.size() == count_, "feedback 'none': the gradient has another length");
    return {.values = gradient, .fresh = {}, .moments = place_->moments(gradient)};
  }
  std::optional<Signal> prepare_part(std::span<const float> gradient, size_t begin,
                                     const Call& /*call*/) override {
    THINWIRE_CHECK(begin + gradient.size() <= count_, "feedback 'none': a part beyond the end");
    return Signal{.values = gradient, .fresh = {}, .moments = place_->moments(gradient)};
  }
  std::span<float> rest() noexcept override { return {}; }
  void commit() override {}
  void rollback() override {}

 private:
  size_t count_;
  SharedPlace place_;
};

std::unique_ptr<Feedback> make(const Options& /*options*/, const StreamSpec& stream,
                               SharedPlace place) {
  return std::make_unique<None>(stream.count(), std::move(place));
}

}  // namespace

const FeedbackEntry& none_entry() {
  static const FeedbackEntry entry{
      .name = "none",
      .summary = "remembers nothing: for codecs that are unbiased or lossless",
      .paper = {},
      .options = {},
      .make = make_here(make),
      .on_device = make_on_device(make)};
  return entry;
}

}  // namespace thinwire
