// Kernels of codecs: names, numbers of threads, arguments.
// SPDX-License-Identifier: Apache-2.0
#include "device/coded_values.h"

#include <algorithm>
#include <cassert>

#include "core/random.h"
#include "device/work_grid.h"
#include "kernel/vector_moments.h"

namespace thinwire::device {
namespace {

constexpr size_t kLevelSums = 24;  // bytes of the text's LevelSums

constexpr size_t kRange = 8, kBlockGrid = 12;  // bytes of structures of grid_blocks.cu

// `GridForm` of the text.
struct GridForm {
  uint64_t block;
  uint32_t bits, shifted;
  float levels;
  uint32_t random;
  uint32_t key[2], step[2];
  uint64_t position;
};

GridForm form_of(const kernel::GridBlocks& blocks, uint64_t block, const kernel::Dither* dither) {
  const PhiloxInput input = philox_input(dither != nullptr ? dither->key : RandomKey());
  return {.block = block,
          .bits = static_cast<uint32_t>(blocks.bits),
          .shifted = blocks.rule == kernel::GridRule::kMinMax ? 1u : 0u,
          .levels = blocks.levels,
          .random = dither != nullptr ? 1u : 0u,
          .key = {input.key[0], input.key[1]},
          .step = {input.counter[2], input.counter[3]},
          .position = dither != nullptr ? dither->position : 0};
}

size_t blocks_of(size_t count, size_t block) { return (count + block - 1) / block; }

// Of sums, in a block.
size_t chunks_of(size_t count, size_t block) {
  return blocks_of(std::min(block, count), kernel::kSumChunk);
}

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

void add_floats_at(Launcher& on, Float16 format, const uint32_t* positions, const std::byte* bytes,
                   size_t kept, float weight, float* out) {
  const char* name =
      format == Float16::kHalf ? "half_float/add_half_at" : "half_float/add_bfloat_at";
  launch(on, name, work_grid(kept), positions, bytes, uint64_t{kept}, weight, out);
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

size_t grid_scratch_bytes(size_t count, const kernel::GridBlocks& blocks) noexcept {
  return blocks_of(count, blocks.block) * (chunks_of(count, blocks.block) * kRange + kBlockGrid);
}

void quantise_grid(Launcher& on, const float* values, size_t count,
                   const kernel::GridBlocks& blocks, const kernel::Dither* dither, std::byte* bytes,
                   float* rest, void* scratch) {
  assert(blocks.rule == kernel::GridRule::kMinMax || blocks.rule == kernel::GridRule::kMax);
  if (count == 0) return;
  const uint64_t block = std::min(blocks.block, count), chunks = chunks_of(count, block);
  const size_t number = blocks_of(count, block);
  const GridForm form = form_of(blocks, block, dither);
  void* const grids = static_cast<std::byte*>(scratch) + number * chunks * kRange;
  launch(on, "grid_blocks/range_chunks", work_grid(32 * number * chunks), values, uint64_t{count},
         block, chunks, scratch);
  launch(on, "grid_blocks/make_grids", work_grid(number), scratch, uint64_t{count}, chunks, form,
         grids, bytes);
  launch(on, "grid_blocks/quantise_grid", work_grid(count / 8 + number), values, uint64_t{count},
         form, grids, bytes, rest);
}

void add_grid(Launcher& on, const std::byte* bytes, size_t count, const kernel::GridBlocks& blocks,
              float weight, float* out, uint32_t* bad) {
  assert(blocks.rule == kernel::GridRule::kMinMax);
  const uint64_t block = std::max<uint64_t>(std::min(blocks.block, count), 1);
  launch(on, "grid_blocks/add_grid", work_grid(count / 8 + blocks_of(count, block)), bytes,
         uint64_t{count}, block, static_cast<uint32_t>(blocks.bits), weight, out, bad);
}

size_t level_scratch_bytes(size_t count, kernel::LevelBlocks blocks) noexcept {
  if (std::min(blocks.block, count) <= kernel::kSumChunk) return 0;
  return blocks_of(count, blocks.block) *
         (chunks_of(count, blocks.block) * kLevelSums + 2 * sizeof(float));
}

void encode_levels(Launcher& on, const float* values, size_t count, kernel::LevelBlocks blocks,
                   std::byte* bytes, float* rest, void* scratch) {
  const uint32_t means = blocks.rule == kernel::LevelRule::kMeans ? 1 : 0;
  const uint64_t block = std::min(blocks.block, count);
  const size_t number = count == 0 ? 0 : blocks_of(count, block);
  if (block <= kernel::kSumChunk) {
    launch(on, "two_levels/encode_levels", work_grid(16 * number), values, uint64_t{count},
           std::max<uint64_t>(block, 1), means, bytes, rest);
    return;
  }
  const uint64_t chunks = chunks_of(count, block);
  void* const levels = static_cast<std::byte*>(scratch) + number * chunks * kLevelSums;
  launch(on, "two_levels/level_chunks", sum_grid(number * chunks), values, uint64_t{count}, block,
         chunks, means, scratch);
  launch(on, "two_levels/level_headers", block_grid(number), values, uint64_t{count}, block, chunks,
         means, scratch, levels, bytes);
  launch(on, "two_levels/pack_levels", work_grid(count / 8 + number), values, uint64_t{count},
         block, means, levels, bytes, rest);
}

void add_levels(Launcher& on, const std::byte* bytes, size_t count, kernel::LevelBlocks blocks,
                float weight, float* out, uint32_t* bad) {
  const uint32_t means = blocks.rule == kernel::LevelRule::kMeans ? 1 : 0;
  const uint64_t block = std::max<uint64_t>(std::min(blocks.block, count), 1);
  launch(on, "two_levels/add_levels", work_grid(count / 8 + 1), bytes, uint64_t{count}, block,
         means, weight, out, bad);
}

void encode_signs(Launcher& on, const float* values, size_t count, uint64_t first, std::byte* bytes,
                  float* rest) {
  launch(on, "two_levels/encode_signs", work_grid(count / 8 + 1), values, uint64_t{count}, first,
         bytes, rest);
}

void add_signs(Launcher& on, const std::byte* bytes, size_t count, float weight, float* out) {
  launch(on, "two_levels/add_signs", work_grid(count / 8 + 1), bytes, uint64_t{count}, weight, out);
}

}  // namespace thinwire::device
