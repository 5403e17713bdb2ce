// Kernels of AdaComp: names, numbers of threads, arguments.
// SPDX-License-Identifier: Apache-2.0
#include "device/bin_kernels.h"

#include "device/work_grid.h"
#include "kernel/bin_codes.h"

namespace thinwire::device {
namespace {

uint32_t bytes_of_code(size_t bin) { return static_cast<uint32_t>(kernel::bin_code_size(bin)); }

}  // namespace

void choose_bins(Launcher& on, const float* values, const float* fresh, size_t count, float factor,
                 size_t bin, BinChoice* choices, uint64_t* offsets, BinTotal* total,
                 uint64_t* codes_needed) {
  const uint64_t bins = bins_of(count, bin);
  launch(on, "bins/choose_bins", work_grid(32 * bins), values, fresh, uint64_t{count}, factor,
         uint64_t{bin}, choices, offsets);
  launch(on, "bins/fold_bins", Grid{.blocks = 1, .threads = 256}, choices, bins, total);
  launch(on, "selection/sum_before", Grid{.blocks = 1, .threads = 32}, offsets, bins, codes_needed);
}

void write_bins(Launcher& on, const float* values, const float* fresh, size_t count, float factor,
                size_t bin, const BinChoice* choices, const uint64_t* offsets, float scale,
                std::byte* codes, float* rest) {
  launch(on, "bins/write_bins", work_grid(32 * bins_of(count, bin)), values, fresh, uint64_t{count},
         factor, uint64_t{bin}, bytes_of_code(bin), choices, offsets, scale, codes, rest);
}

void add_bins(Launcher& on, const std::byte* codes, size_t size, size_t bin, float scale,
              uint64_t* tiles, float* out, size_t count, uint64_t* used, uint32_t* bad) {
  const uint32_t bytes = bytes_of_code(bin);
  const uint64_t number = size / bytes, number_of_tiles = code_tiles(number);
  const Grid grid = work_grid(32 * number_of_tiles);
  launch(on, "bins/count_ends", grid, codes, number, bytes, tiles);
  launch(on, "selection/sum_before", Grid{.blocks = 1, .threads = 32}, tiles, number_of_tiles,
         tiles + number_of_tiles);
  launch(on, "bins/add_bins", grid, codes, number, bytes, uint64_t{bin}, scale, tiles, out,
         uint64_t{count}, used, bad);
}

}  // namespace thinwire::device
