// MemoryPlace: where a memory's vectors lie, the processor's memory or a device's, and the passes
// over them there.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "device/device_work.h"
#include "feedback/scratch_pool.h"
#include "kernel/ahead_passes.h"
#include "kernel/memory_passes.h"
#include "thinwire/feedback.h"
#include "thinwire/moments.h"

namespace thinwire {

// Every span of floats is of memory of this place, unless said otherwise. Passes are those of
// kernel/memory_passes.h and kernel/ahead_passes.h of the same name, with the same bits everywhere.
// On a device they take scratch memory anew, and may return before they are done; those that return
// something wait.
class MemoryPlace {
 public:
  virtual ~MemoryPlace() = default;

  using Vector = PlacedVector;
  virtual Vector zeros(size_t count) = 0;

  // For vectors that a memory needs for a part of a step.
  virtual std::shared_ptr<ScratchPool> scratch_pool() = 0;

  // From and to the processor's memory.
  virtual void fetch(std::span<const float> from, std::span<float> to) = 0;
  virtual void store(std::span<const float> from, std::span<float> to) = 0;

  virtual Moments moments(std::span<const float> values) = 0;
  virtual bool any_nonzero(std::span<const float> values) = 0;
  virtual void scaled(std::span<const float> from, float factor, std::span<float> to) = 0;
  virtual Moments weighted_sum_with_moments(float p, std::span<const float> a, float q,
                                            std::span<const float> b, std::span<float> out) = 0;
  virtual void weighted_sum(float p, std::span<const float> a, float q, std::span<const float> b,
                            std::span<float> out) = 0;
  virtual Moments add_velocity(const kernel::MomentumRule& rule, std::span<const float> gradient,
                               std::span<const float> velocity, std::span<const float> sum,
                               std::span<float> new_velocity, std::span<float> new_sum) = 0;
  virtual void mask_velocity(const kernel::MomentumRule& rule, std::span<const float> gradient,
                             std::span<const float> sum, std::span<const float> rest,
                             std::span<float> new_velocity) = 0;
  // The positions are in the processor's memory.
  virtual void mask_velocity_at(const kernel::MomentumRule& rule,
                                std::span<const uint32_t> positions,
                                std::span<const float> gradient, std::span<const float> sum,
                                std::span<const float> rest, std::span<float> new_velocity) = 0;
  virtual Moments form_ahead(const kernel::MomentumRule& rule, float tail,
                             std::span<const float> gradient, std::span<const float> velocity,
                             std::span<const float> sum, std::span<float> new_velocity,
                             std::span<float> new_sum, std::span<float> signal) = 0;
  virtual void settle_ahead(const kernel::MomentumRule& rule, float tail,
                            std::span<const float> gradient, std::span<const float> rest,
                            std::span<float> new_velocity, std::span<float> new_sum) = 0;
  // The positions are in the processor's memory. A device settles all values.
  virtual void settle_ahead_at(const kernel::MomentumRule& rule, float tail,
                               std::span<const uint32_t> positions, size_t begin,
                               std::span<const float> gradient, std::span<const float> rest,
                               std::span<float> new_velocity, std::span<float> new_sum) = 0;
};
using SharedPlace = std::shared_ptr<MemoryPlace>;

SharedPlace on_processor();
SharedPlace on_device(SharedWork work);

// For FeedbackEntry::make and on_device, of a memory that is made for any place.
using MakeThere =
    std::function<std::unique_ptr<Feedback>(const Options&, const StreamSpec&, SharedPlace)>;
inline auto make_here(MakeThere make) {
  return [make = std::move(make)](const Options& options, const StreamSpec& stream) {
    return make(options, stream, on_processor());
  };
}
inline auto make_on_device(MakeThere make) {
  return
      [make = std::move(make)](const Options& options, const StreamSpec& stream, SharedWork work) {
        return make(options, stream, on_device(std::move(work)));
      };
}

}  // namespace thinwire
