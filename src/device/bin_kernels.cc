// Kernels of AdaComp: names, numbers of threads, arguments.
// SPDX-License-Identifier: Apache-2.0
#include "device/bin_kernels.h"

#include "device/sums_before.h"
#include "device/work_grid.h"
#include "kernel/bin_codes.h"

namespace thinwire::device {
namespace {

uint32_t bytes_of_code(size_t bin) { return static_cast<uint32_t>(kernel::bin_code_size(bin)); }

}  // namespace

void choose_bins(Launcher& on, const float* values, const float* fresh, size_t count, float factor,
                 size_t bin, BinChoice* choices, uint64_t* offsets, BinTotal* totals) {
  const uint64_t bins = bins_of(count, bin);
  launch(on, "bins/choose_bins", work_grid(32 * bins), values, fresh, uint64_t{count}, factor,
         uint64_t{bin}, choices, offsets);
  const uint64_t chunks = bin_totals(bins) - 1;
  launch(on, "bins/bin_chunks", sum_grid(chunks), choices, bins, totals + 1);
  launch(on, "bins/fold_bins", kOneBlock, totals + 1, chunks, totals);
  sum_before(on, offsets, bins, &totals->codes);
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
  launch(on, "bins/count_ends", grid, codes, number, bytes, tiles + 1);
  sum_before(on, tiles + 1, number_of_tiles, tiles);
  launch(on, "bins/add_bins", grid, codes, number, bytes, uint64_t{bin}, scale, tiles + 1, out,
         uint64_t{count}, used, bad);
}

}  // namespace thinwire::device
