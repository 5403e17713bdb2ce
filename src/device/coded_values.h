// Codecs' kernels on a device: payloads and remainders with the bits of the kernels of src/kernel.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "device/launcher.h"
#include "kernel/scaled_blocks.h"

namespace thinwire::device {

// Pointers are to memory that the launcher's kernels reach; bytes may lie at any address. Everything is queued and
// returns at once. What a function does is said beside its namesake of src/kernel. A `rest` may be null, or `values`
// themselves. `bad` is one word, which is set to 1 where the namesake returns false and is left alone otherwise.

enum class Float16 : uint8_t { kHalf, kBfloat };

// kernel::to_half_saturated and to_bfloat_saturated.
void encode_floats(Launcher& on, Float16 format, const float* values, size_t count,
                   std::byte* bytes, float* rest);
// kernel::add_half and add_bfloat.
void add_floats(Launcher& on, Float16 format, const std::byte* bytes, size_t count, float weight,
                float* out, uint32_t* bad);

void quantise_blocks(Launcher& on, const float* values, size_t count, kernel::ScaledBlocks blocks,
                     std::byte* bytes, float* rest);
void add_blocks(Launcher& on, const std::byte* bytes, size_t count, kernel::ScaledBlocks blocks,
                float weight, float* out, uint32_t* bad);

}  // namespace thinwire::device
