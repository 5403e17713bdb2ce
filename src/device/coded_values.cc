// Kernels of codecs: names, numbers of threads, arguments.
// SPDX-License-Identifier: Apache-2.0
#include "device/coded_values.h"

#include "device/work_grid.h"

namespace thinwire::device {
namespace {

size_t blocks_of(size_t count, size_t block) { return (count + block - 1) / block; }

}  // namespace

void encode_floats(Launcher& on, Float16 format, const float* values, size_t count,
                   std::byte* bytes, float* rest) {
  const char* name =
      format == Float16::kHalf ? "half_float/encode_half" : "half_float/encode_bfloat";
  launch(on, name, work_grid(count), values, uint64_t{count}, bytes, rest);
}

void add_floats(Launcher& on, Float16 format, const std::byte* bytes, size_t count, float weight,
                float* out, uint32_t* bad) {
  const char* name = format == Float16::kHalf ? "half_float/add_half" : "half_float/add_bfloat";
  launch(on, name, work_grid(count), bytes, uint64_t{count}, weight, out, bad);
}

void quantise_blocks(Launcher& on, const float* values, size_t count, kernel::ScaledBlocks blocks,
                     std::byte* bytes, float* rest) {
  launch(on, "scaled_blocks/quantise_blocks", work_grid(32 * blocks_of(count, blocks.block)),
         values, uint64_t{count}, uint64_t{blocks.block}, static_cast<uint32_t>(blocks.bits), bytes,
         rest);
}

void add_blocks(Launcher& on, const std::byte* bytes, size_t count, kernel::ScaledBlocks blocks,
                float weight, float* out, uint32_t* bad) {
  launch(on, "scaled_blocks/add_blocks", work_grid(32 * blocks_of(count, blocks.block)), bytes,
         uint64_t{count}, uint64_t{blocks.block}, static_cast<uint32_t>(blocks.bits), weight, out,
         bad);
}

}  // namespace thinwire::device
