// Memories' passes on a device, with the bits of kernel/memory_passes.h and
// kernel/vector_moments.h.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "device/launcher.h"
#include "kernel/memory_passes.h"
#include "thinwire/moments.h"

namespace thinwire::device {

// Pointers are to memory that the launcher's kernels reach. Everything is queued and returns at
// once. What a function does is said beside its namesake of src/kernel, aliasing too.

// Moments on the way: of a chunk, or of all.
struct ChunkMoments {
  double abs_sum, square_sum;
  uint32_t abs_max;  // its bits
  uint32_t unused;
};

// Room for the moments of `count` values: the first is the total once all is done, which moments_of
// reads.
constexpr size_t moment_entries(size_t count) noexcept { return 1 + (count + 8191) / 8192; }
Moments moments_of(const ChunkMoments& total) noexcept;

// `entries` are moment_entries(count) of them.
void moments(Launcher& on, const float* values, size_t count, ChunkMoments* entries);
void weighted_sum_with_moments(Launcher& on, float p, const float* a, float q, const float* b,
                               float* out, size_t count, ChunkMoments* entries);
void add_velocity(Launcher& on, const kernel::MomentumRule& rule, const float* gradient,
                  const float* velocity, const float* sum, float* new_velocity, float* new_sum,
                  size_t count, ChunkMoments* entries);
void form_ahead(Launcher& on, const kernel::MomentumRule& rule, float tail, const float* gradient,
                const float* velocity, const float* sum, float* new_velocity, float* new_sum,
                float* signal, size_t count, ChunkMoments* entries);

void weighted_sum(Launcher& on, float p, const float* a, float q, const float* b, float* out,
                  size_t count);
void mask_velocity(Launcher& on, const kernel::MomentumRule& rule, const float* gradient,
                   const float* sum, const float* rest, float* new_velocity, size_t count);
void mask_velocity_at(Launcher& on, const kernel::MomentumRule& rule, const uint32_t* positions,
                      size_t kept, const float* gradient, const float* sum, const float* rest,
                      float* new_velocity);
void settle_ahead(Launcher& on, const kernel::MomentumRule& rule, float tail, const float* gradient,
                  const float* rest, float* new_velocity, float* new_sum, size_t count);
void advance_estimate(Launcher& on, const float* estimate, const float* gradient, float* rest,
                      size_t count);
void add_and_copy(Launcher& on, float* total, float* values, size_t count);

}  // namespace thinwire::device
