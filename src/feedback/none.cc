// none: the gradient as it is; what a message could not carry is lost.
// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "core/check.h"
#include "feedback/device_memories.h"
#include "feedback/feedback_rules.h"
#include "kernel/vector_moments.h"

namespace thinwire {
namespace {

class None final : public Feedback {
 public:
  explicit None(size_t count) : count_(count) {}

  Signal prepare(std::span<const float> gradient, const Call& /*call*/) override {
    THINWIRE_CHECK(gradient.size() == count_, "feedback 'none': the gradient has another length");
    return {.values = gradient, .fresh = {}, .moments = kernel::moments(gradient)};
  }
  std::optional<Signal> prepare_part(std::span<const float> gradient, size_t begin,
                                     const Call& /*call*/) override {
    THINWIRE_CHECK(begin + gradient.size() <= count_, "feedback 'none': a part beyond the end");
    return Signal{.values = gradient, .fresh = {}, .moments = kernel::moments(gradient)};
  }
  std::span<float> rest() noexcept override { return {}; }
  void commit() override {}
  void rollback() override {}

 private:
  size_t count_;
};

}  // namespace

const FeedbackEntry& none_entry() {
  static const FeedbackEntry entry{
      .name = "none",
      .summary = "remembers nothing: for codecs that are unbiased or lossless",
      .paper = {},
      .options = {},
      .make = [](const Options& /*options*/,
                 const StreamSpec& stream) { return std::make_unique<None>(stream.count()); },
      .on_device = [](const Options& /*options*/, const StreamSpec& stream,
                      SharedWork work) { return make_device_none(stream, std::move(work)); }};
  return entry;
}

}  // namespace thinwire
