// none and residual for gradients in a device's memory: the passes and bits of none.cc and residual.cc.
// SPDX-License-Identifier: Apache-2.0
#include "feedback/device_memories.h"

#include <optional>
#include <utility>
#include <vector>

#include "device/memory_kernels.h"
#include "feedback/step_guard.h"

namespace thinwire {
namespace {

class DeviceNone final : public Feedback {
 public:
  DeviceNone(size_t count, SharedWork work) : guard_("none", count), work_(std::move(work)) {}

  Signal prepare(std::span<const float> gradient, const Call& /*call*/) override {
    guard_.prepare(gradient.size());
    work_->begin();
    return {.values = gradient, .fresh = {}, .moments = device::measure(*work_, gradient)};
  }
  std::span<float> rest() noexcept override { return {}; }
  void commit() override { guard_.commit(); }
  void rollback() override { guard_.rollback(); }

 private:
  StepGuard guard_;
  SharedWork work_;
};

class DeviceResidual final : public Feedback {
 public:
  DeviceResidual(float beta, size_t count, SharedWork work)
      : beta_(beta),
        guard_("residual", count),
        work_(std::move(work)),
        kept_{{work_, count}, {work_, count}} {}

  Signal prepare(std::span<const float> gradient, const Call& /*call*/) override {
    guard_.prepare(gradient.size());
    return form(gradient, 0);
  }
  std::optional<Signal> prepare_part(std::span<const float> gradient, size_t begin,
                                     const Call& /*call*/) override {
    guard_.prepare_part(begin, gradient.size());
    return form(gradient, begin);
  }
  bool only_adds() const noexcept override { return true; }
  std::span<float> rest() noexcept override { return kept_[1 - now_].values(); }
  void commit() override {
    guard_.commit();
    now_ = 1 - now_;
  }
  void rollback() override { guard_.rollback(); }

  double owed_squares() const override {
    work_->begin();
    return device::measure(*work_, now()).square_sum;
  }

  // As the processor's memory of this name saves it.
  StateArrays save() const override {
    std::vector<float> values(now().size());
    work_->fetch(std::as_writable_bytes(std::span(values)), now().data());
    return {make_state("residual", std::span<const float>(values), OnResize::kOwedToMean)};
  }
  Status load(const StateArrays& arrays) override {
    std::vector<float> values(now().size());
    if (Status status = copy_state(arrays, "residual", std::span<float>(values)); !status)
      return status;
    work_->send(now().data(), std::as_bytes(std::span(values)));
    work_->await();
    guard_.rollback();
    return Status::ok();
  }

 private:
  Signal form(std::span<const float> gradient, size_t begin) {
    work_->begin();
    auto* const entries =
        work_->room<device::ChunkMoments>(device::moment_entries(gradient.size()));
    const std::span<float> next = rest().subspan(begin, gradient.size());
    device::weighted_sum_with_moments(work_->launcher(), beta_, now().data() + begin, 1,
                                      gradient.data(), next.data(), gradient.size(), entries);
    return {
        .values = next, .fresh = gradient, .moments = device::moments_of(work_->fetch(entries))};
  }

  std::span<float> now() const noexcept { return kept_[now_].values(); }

  const float beta_;
  StepGuard guard_;
  SharedWork work_;
  device::DeviceFloats kept_[2];
  size_t now_ = 0;  // the one that a step reads
};

}  // namespace

std::unique_ptr<Feedback> make_device_none(const StreamSpec& stream, SharedWork work) {
  return std::make_unique<DeviceNone>(stream.count(), std::move(work));
}

std::unique_ptr<Feedback> make_device_residual(float beta, const StreamSpec& stream,
                                               SharedWork work) {
  return std::make_unique<DeviceResidual>(beta, stream.count(), std::move(work));
}

}  // namespace thinwire
