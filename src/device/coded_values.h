// Codecs' kernels on a device: payloads and remainders with the bits of the kernels of src/kernel.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "device/launcher.h"
#include "kernel/grid_blocks.h"
#include "kernel/scaled_blocks.h"
#include "kernel/two_levels.h"

namespace thinwire::device {

// Pointers are to memory that the launcher's kernels reach; bytes may lie at any address.
// Everything is queued and returns at once. What a function does is said beside its namesake of
// src/kernel. A `rest` may be null, or `values` themselves. `bad` is one word, which is set to 1
// where the namesake returns false and is left alone otherwise.

enum class Float16 : uint8_t { kHalf, kBfloat };

// kernel::to_half_saturated and to_bfloat_saturated.
void encode_floats(Launcher& on, Float16 format, const float* values, size_t count,
                   std::byte* bytes, float* rest);
// kernel::add_half and add_bfloat.
void add_floats(Launcher& on, Float16 format, const std::byte* bytes, size_t count, float weight,
                float* out, uint32_t* bad);
// The same for values at these positions, which differ. REQUIRES: finite values.
void add_floats_at(Launcher& on, Float16 format, const uint32_t* positions, const std::byte* bytes,
                   size_t kept, float weight, float* out);

void quantise_blocks(Launcher& on, const float* values, size_t count, kernel::ScaledBlocks blocks,
                     std::byte* bytes, float* rest);
void add_blocks(Launcher& on, const std::byte* bytes, size_t count, kernel::ScaledBlocks blocks,
                float weight, float* out, uint32_t* bad);

// kernel::quantise_grid and add_grid, of the rules kMinMax and kMax; what kMax wrote add_blocks
// reads. `scratch` has grid_scratch_bytes(count, blocks) bytes, at a multiple of 8.
size_t grid_scratch_bytes(size_t count, const kernel::GridBlocks& blocks) noexcept;
void quantise_grid(Launcher& on, const float* values, size_t count,
                   const kernel::GridBlocks& blocks, const kernel::Dither* dither, std::byte* bytes,
                   float* rest, void* scratch);
void add_grid(Launcher& on, const std::byte* bytes, size_t count, const kernel::GridBlocks& blocks,
              float weight, float* out, uint32_t* bad);

// kernel::encode_levels and add_levels. `scratch` has level_scratch_bytes(count, blocks) bytes, at
// a multiple of 8; null where that is 0.
size_t level_scratch_bytes(size_t count, kernel::LevelBlocks blocks) noexcept;
void encode_levels(Launcher& on, const float* values, size_t count, kernel::LevelBlocks blocks,
                   std::byte* bytes, float* rest, void* scratch);
void add_levels(Launcher& on, const std::byte* bytes, size_t count, kernel::LevelBlocks blocks,
                float weight, float* out, uint32_t* bad);

// What codec/signum.cc encodes and adds; `first` is the position of the first value plus the step.
void encode_signs(Launcher& on, const float* values, size_t count, uint64_t first, std::byte* bytes,
                  float* rest);
void add_signs(Launcher& on, const std::byte* bytes, size_t count, float weight, float* out);

}  // namespace thinwire::device
