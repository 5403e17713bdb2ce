// Kernels of sparsifiers: names, numbers of threads, arguments.
// SPDX-License-Identifier: Apache-2.0
#include "device/selection_kernels.h"

#include <bit>

#include "device/work_grid.h"

namespace thinwire::device {
namespace {

// Every block clears and adds up a histogram of its own: so fewer blocks, of more values each.
Grid histogram_grid(size_t count) { return work_grid(count / 32 + 1); }

uint32_t key_of(float threshold) {
  return std::bit_cast<uint32_t>(threshold) & 0x7fffffff;  // -0 is 0
}

// Counts above and, unless `ties` is null, equal, each as what comes before a tile.
void count_tiles(Launcher& on, const float* values, size_t count, float threshold, uint64_t* tiles,
                 uint64_t* ties, uint64_t* found) {
  const uint64_t number = tiles_of(count);
  launch(on, "selection/count_tiles", work_grid(32 * number), values, uint64_t{count},
         key_of(threshold), tiles, ties);
  sum_before(on, tiles, number, found);
  if (ties != nullptr) sum_before(on, ties, number, found + 1);
}

void write_selected(Launcher& on, const float* values, size_t count, float threshold,
                    const uint64_t* tiles, const uint64_t* ties, size_t most_ties, size_t most,
                    uint32_t* positions, float* kept, float* rest) {
  launch(on, "selection/write_selected", work_grid(32 * tiles_of(count)), values, uint64_t{count},
         key_of(threshold), tiles, ties, uint64_t{most_ties}, uint64_t{most}, positions, kept,
         rest);
}

}  // namespace

void select_top(Launcher& on, const float* values, size_t count, float threshold, size_t ties,
                uint32_t* positions, float* kept, float* rest, uint64_t* tiles, uint64_t* found) {
  uint64_t* const equal = tiles + tile_room(count);
  count_tiles(on, values, count, threshold, tiles, equal, found);
  write_selected(on, values, count, threshold, tiles, equal, ties, count, positions, kept, rest);
}

void count_above(Launcher& on, const float* values, size_t count, float threshold, uint64_t* tiles,
                 uint64_t* found) {
  count_tiles(on, values, count, threshold, tiles, nullptr, found);
}

void write_above(Launcher& on, const float* values, size_t count, float threshold, size_t most,
                 const uint64_t* tiles, uint32_t* positions, float* kept, float* rest) {
  write_selected(on, values, count, threshold, tiles, nullptr, 0, most, positions, kept, rest);
}

void find_kth(Launcher& on, const float* values, size_t count, size_t k, uint32_t* bins,
              KthState* kth) {
  launch(on, "selection/fill_words", work_grid(kKthBins), bins, uint64_t{kKthBins}, uint32_t{0});
  launch(on, "selection/fill_words", work_grid(1), kth, uint64_t{sizeof *kth / 4}, uint32_t{0});
  struct Digit {
    uint32_t shift, width;
  };
  for (const Digit digit : {Digit{20, 11}, Digit{10, 10}, Digit{0, 10}}) {
    launch(on, "selection/count_bins", histogram_grid(count), values, uint64_t{count}, digit.shift,
           digit.width, kth, bins);
    launch(on, "selection/find_bin", kOneBlock, bins, digit.width, uint64_t{k}, kth);
  }
}

void sample_values(Launcher& on, const float* values, size_t count, uint32_t phase, float* sample,
                   size_t size) {
  if (size == 0) return;
  launch(on, "selection/sample_values", work_grid(size), values, uint64_t{count}, phase, sample,
         uint64_t{size});
}

void tail_moments(Launcher& on, const float* values, size_t count, float threshold, float largest,
                  TailEntry* entries) {
  const uint64_t chunks = tail_entries(count) - 1;
  launch(on, "tails/tail_chunks", sum_grid(chunks), values, uint64_t{count}, threshold,
         kernel::tail_unit(largest), entries + 1);
  launch(on, "tails/fold_tail", kOneBlock, entries + 1, chunks, entries);
}

kernel::TailMoments tail_of(const TailEntry& total, float largest) noexcept {
  return kernel::unscaled({.count = total.count,
                           .sum = total.sum,
                           .square_sum = total.square_sum,
                           .smallest = std::bit_cast<float>(total.smallest)},
                          largest);
}

void log_chunks(Launcher& on, const float* values, size_t count, double guard, double unit,
                kernel::LogChunk* chunks) {
  launch(on, "tails/log_chunks", sum_grid(log_chunks_of(count)), values, uint64_t{count}, guard,
         1 / unit, chunks);
}

void add_at(Launcher& on, const uint32_t* positions, const float* values, size_t kept, float weight,
            float* out) {
  launch(on, "selection/add_at", work_grid(kept), positions, values, uint64_t{kept}, weight, out);
}

void put_at(Launcher& on, const uint32_t* positions, const float* values, size_t kept,
            float* rest) {
  launch(on, "selection/put_at", work_grid(kept), positions, values, uint64_t{kept}, rest);
}

}  // namespace thinwire::device
