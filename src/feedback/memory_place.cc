// The processor's place calls kernels of src/kernel, a device's those of src/device.
// SPDX-License-Identifier: Apache-2.0
#include "feedback/memory_place.h"

#include <algorithm>
#include <utility>

#include "core/aligned.h"
#include "device/memory_kernels.h"
#include "kernel/axpy.h"
#include "kernel/vector_moments.h"

namespace thinwire {
namespace {

using Rule = kernel::MomentumRule;
using In = std::span<const float>;
using Out = std::span<float>;

class Processor final : public MemoryPlace {
 public:
  Vector zeros(size_t count) override {
    auto values = std::make_shared<AlignedVector<float>>(count);
    const Out span = *values;
    return {span, std::move(values)};
  }
  std::shared_ptr<ScratchPool> scratch_pool() override {
    return shared_scratch_pool(0, [this](size_t count) { return zeros(count); });
  }
  void fetch(In from, Out to) override { std::copy(from.begin(), from.end(), to.begin()); }
  void store(In from, Out to) override { std::copy(from.begin(), from.end(), to.begin()); }
  Moments moments(In values) override { return kernel::moments(values); }
  bool any_nonzero(In values) override {
    return std::any_of(values.begin(), values.end(), [](float value) { return value != 0; });
  }
  void scaled(In from, float factor, Out to) override {
    std::copy(from.begin(), from.end(), to.begin());
    kernel::scale(to, factor);
  }
  Moments weighted_sum_with_moments(float p, In a, float q, In b, Out out) override {
    return kernel::weighted_sum_with_moments(p, a, q, b, out);
  }
  void weighted_sum(float p, In a, float q, In b, Out out) override {
    kernel::weighted_sum(p, a, q, b, out);
  }
  Moments add_velocity(const Rule& rule, In gradient, In velocity, In sum, Out new_velocity,
                       Out new_sum) override {
    return kernel::add_velocity(rule, gradient, velocity, sum, new_velocity, new_sum);
  }
  void mask_velocity(const Rule& rule, In gradient, In sum, In rest, Out new_velocity) override {
    kernel::mask_velocity(rule, gradient, sum, rest, new_velocity);
  }
  void mask_velocity_at(const Rule& rule, std::span<const uint32_t> positions, In gradient, In sum,
                        In rest, Out new_velocity) override {
    kernel::mask_velocity_at(rule, positions, gradient, sum, rest, new_velocity);
  }
  Moments form_ahead(const Rule& rule, float tail, In gradient, In velocity, In sum,
                     Out new_velocity, Out new_sum, Out signal) override {
    return kernel::form_ahead(rule, tail, gradient, velocity, sum, new_velocity, new_sum, signal);
  }
  void settle_ahead(const Rule& rule, float tail, In gradient, In rest, Out new_velocity,
                    Out new_sum) override {
    kernel::settle_ahead(rule, tail, gradient, rest, new_velocity, new_sum);
  }
  void settle_ahead_at(const Rule& rule, float tail, std::span<const uint32_t> positions,
                       size_t begin, In gradient, In rest, Out new_velocity, Out new_sum) override {
    kernel::settle_ahead_at(rule, tail, positions, begin, gradient, rest, new_velocity, new_sum);
  }
};

class OnDevice final : public MemoryPlace {
 public:
  explicit OnDevice(SharedWork work) : work_(std::move(work)) {}

  Vector zeros(size_t count) override {
    auto floats = std::make_shared<device::DeviceFloats>(work_, count);
    const Out span = floats->values();
    return {span, std::move(floats)};
  }
  std::shared_ptr<ScratchPool> scratch_pool() override {
    return shared_scratch_pool(
        work_->number(), [work = work_](size_t count) { return OnDevice(work).zeros(count); });
  }
  void fetch(In from, Out to) override { work_->fetch(std::as_writable_bytes(to), from.data()); }
  void store(In from, Out to) override {
    work_->send(to.data(), std::as_bytes(from));
    work_->await();
  }
  Moments moments(In values) override {
    work_->begin();
    return device::measure(*work_, values);
  }
  bool any_nonzero(In values) override { return moments(values).abs_max != 0; }
  void scaled(In from, float factor, Out to) override {
    device::copy(*work_, from, to);
    device::scale(*work_, to, factor);
  }
  Moments weighted_sum_with_moments(float p, In a, float q, In b, Out out) override {
    return with_moments(out.size(), [&](device::ChunkMoments* entries) {
      device::weighted_sum_with_moments(on(), p, a.data(), q, b.data(), out.data(), out.size(),
                                        entries);
    });
  }
  void weighted_sum(float p, In a, float q, In b, Out out) override {
    device::weighted_sum(on(), p, a.data(), q, b.data(), out.data(), out.size());
  }
  Moments add_velocity(const Rule& rule, In gradient, In velocity, In sum, Out new_velocity,
                       Out new_sum) override {
    return with_moments(gradient.size(), [&](device::ChunkMoments* entries) {
      device::add_velocity(on(), rule, gradient.data(), velocity.data(), sum.data(),
                           new_velocity.data(), new_sum.data(), gradient.size(), entries);
    });
  }
  void mask_velocity(const Rule& rule, In gradient, In sum, In rest, Out new_velocity) override {
    device::mask_velocity(on(), rule, gradient.data(), sum.data(), rest.data(), new_velocity.data(),
                          gradient.size());
  }
  void mask_velocity_at(const Rule& rule, std::span<const uint32_t> positions, In gradient, In sum,
                        In rest, Out new_velocity) override {
    if (positions.empty()) return;
    work_->await();  // what an encoder left may still be read from scratch memory
    work_->begin();
    auto* const there = work_->room<uint32_t>(positions.size());
    work_->send(there, std::as_bytes(positions));
    device::mask_velocity_at(on(), rule, there, positions.size(), gradient.data(), sum.data(),
                             rest.data(), new_velocity.data());
    work_->await();  // the positions' room is free again
  }
  Moments form_ahead(const Rule& rule, float tail, In gradient, In velocity, In sum,
                     Out new_velocity, Out new_sum, Out signal) override {
    return with_moments(gradient.size(), [&](device::ChunkMoments* entries) {
      device::form_ahead(on(), rule, tail, gradient.data(), velocity.data(), sum.data(),
                         new_velocity.data(), new_sum.data(), signal.data(), gradient.size(),
                         entries);
    });
  }
  void settle_ahead(const Rule& rule, float tail, In gradient, In rest, Out new_velocity,
                    Out new_sum) override {
    device::settle_ahead(on(), rule, tail, gradient.data(), rest.data(), new_velocity.data(),
                         new_sum.data(), gradient.size());
  }
  void settle_ahead_at(const Rule& rule, float tail, std::span<const uint32_t> /*positions*/,
                       size_t /*begin*/, In gradient, In rest, Out new_velocity,
                       Out new_sum) override {
    settle_ahead(rule, tail, gradient, rest, new_velocity, new_sum);
  }

 private:
  device::Launcher& on() noexcept { return work_->launcher(); }

  template <typename Launch>
  Moments with_moments(size_t count, const Launch& launch) {
    work_->begin();
    auto* const entries = work_->room<device::ChunkMoments>(device::moment_entries(count));
    launch(entries);
    return device::moments_of(work_->fetch(entries));
  }

  SharedWork work_;
};

}  // namespace

SharedPlace on_processor() {
  static const SharedPlace place = std::make_shared<Processor>();
  return place;
}

SharedPlace on_device(SharedWork work) { return std::make_shared<OnDevice>(std::move(work)); }

}  // namespace thinwire
