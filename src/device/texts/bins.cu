// AdaComp's bins, as kernel/bin_codes.h: a warp per bin, and a thread per code that is read.
// SPDX-License-Identifier: Apache-2.0

// What is selected of a bin.
struct BinChoice {
  float max;
  u32 kept;
};

DEVICE bool chosen(float g, float fresh, float factor, float max) {
  return magnitude(__fadd_rn(g, __fmul_rn(factor, fresh))) >= max && g != 0;
}

// The offset in its bin of all ones says that nothing is sent.
struct BinLayout {
  u32 last, negative, offset, empty;
};

DEVICE BinLayout layout_of(u32 bytes) {
  const u32 last = 1u << (8 * bytes - 1);
  return {last, last >> 1, (last >> 1) - 1, last | ((last >> 1) - 1)};
}

DEVICE void put_code(u8* codes, u64 at, u32 bytes, u32 code) {
  if (bytes == 1)
    codes[at] = static_cast<u8>(code);
  else
    put16(codes + 2 * at, code);
}

DEVICE u32 get_code(const u8* codes, u64 at, u32 bytes) {
  return bytes == 1 ? codes[at] : get16(codes + 2 * at);
}

DEVICE u32 larger_of(u32 max_bits, float value) {
  return magnitude_bits(value) > max_bits ? magnitude_bits(value) : max_bits;
}

// A bin of at most 32 * kAhead values, which stay in the lanes' registers. The zeros behind its end
// are not selected.
DEVICE BinChoice choose_held(const float* g, const float* fresh, u64 begin, u64 end, float factor) {
  float held[kAhead], held_fresh[kAhead];
  load_ahead(g, begin, end, held);
  load_ahead(fresh, begin, end, held_fresh);
  u32 max_bits = 0;
  UNROLL for (u32 k = 0; k < kAhead; ++k) max_bits = larger_of(max_bits, held[k]);
  const float max = __uint_as_float(__reduce_max_sync(kAllLanes, max_bits));
  u32 kept = 0;
  UNROLL for (u32 k = 0; k < kAhead; ++k) kept += chosen(held[k], held_fresh[k], factor, max);
  return {max, __reduce_add_sync(kAllLanes, kept)};
}

DEVICE BinChoice choose_long(const float* g, const float* fresh, u64 begin, u64 end, float factor) {
  u32 max_bits = 0;
  for (u64 i = begin + threadIdx.x % 32; i < end; i += 32) max_bits = larger_of(max_bits, g[i]);
  const float max = __uint_as_float(__reduce_max_sync(kAllLanes, max_bits));
  u32 kept = 0;
  for (u64 i = begin + threadIdx.x % 32; i < end; i += 32)
    kept += chosen(g[i], fresh[i], factor, max);
  return {max, __reduce_add_sync(kAllLanes, kept)};
}

// Of each bin its largest magnitude and how many are selected, and into `codes` how many codes it
// takes.
KERNEL void choose_bins(const float* g, const float* fresh, u64 count, float factor, u64 bin,
                        BinChoice* choices, u64* codes) {
  const u64 bins = (count + bin - 1) / bin;
  for (u64 number = thread_index() / 32; number < bins; number += thread_count() / 32) {
    const u64 begin = number * bin, end = begin + bin < count ? begin + bin : count;
    const BinChoice choice = bin <= 32 * kAhead ? choose_held(g, fresh, begin, end, factor)
                                                : choose_long(g, fresh, begin, end, factor);
    if (threadIdx.x % 32 != 0) continue;
    choices[number] = choice;
    codes[number] = choice.kept > 0 ? choice.kept : 1;
  }
}

// As device/bin_kernels.h has it.
struct BinTotal {
  double max_sum;
  u64 kept, codes;
};

// Of each kSumChunk bins; half a warp each.
SUM_KERNEL void bin_chunks(const BinChoice* choices, u64 bins, BinTotal* chunks) {
  for_sum_chunks(bins, [&](const SumChunk& chunk) {
    double max_sum = 0;
    u32 kept = 0;
    for_lane<BinChoice>(
        chunk.begin, chunk.end, [&](u64 i) { return choices[i]; },
        [&](u64, const BinChoice& choice) {
          max_sum = __dadd_rn(max_sum, choice.max);
          kept += choice.kept;
        });
    max_sum = fold_lanes(max_sum);
    kept = fold_counts(kept);
    if (sum_lane() == 0 && chunk.exists) chunks[chunk.number] = {max_sum, kept, 0};
  });
}

DEVICE void add_chunk(BinTotal& total, const BinTotal& chunk) {
  total.max_sum = __dadd_rn(total.max_sum, chunk.max_sum);
  total.kept += chunk.kept;
}

KERNEL void fold_bins(const BinTotal* chunks, u64 count, BinTotal* total) {
  fold_in_order(chunks, count, total);
}

// The codes of each bin, from where those before it end; a rest that is not null receives what is
// left at `scale`. It may be `g`: a value is read once more, by the thread that writes its rest.
KERNEL void write_bins(const float* g, const float* fresh, u64 count, float factor, u64 bin,
                       u32 bytes, const BinChoice* choices, const u64* offsets, float scale,
                       u8* codes, float* rest) {
  const BinLayout layout = layout_of(bytes);
  const u64 bins = (count + bin - 1) / bin;
  for (u64 number = thread_index() / 32; number < bins; number += thread_count() / 32) {
    const u64 first = number * bin, end = first + bin < count ? first + bin : count;
    const BinChoice choice = choices[number];
    const u32 lane = threadIdx.x % 32;
    if (lane == 0 && choice.kept == 0) put_code(codes, offsets[number], bytes, layout.empty);
    u32 written = 0;
    for (u64 batch = first; batch < end; batch += 32 * kAhead) {
      float values[kAhead], of_fresh[kAhead];
      load_ahead(g, batch, end, values);
      load_ahead(fresh, batch, end, of_fresh);
      UNROLL for (u32 k = 0; k < kAhead; ++k) {
        const u64 i = batch + 32 * k + lane;
        if (i - lane >= end) break;  // all lanes
        const float value = values[k];
        const bool sent = chosen(value, of_fresh[k], factor, choice.max);
        const u32 bits = __ballot_sync(kAllLanes, sent);
        const u32 at = written + static_cast<u32>(__popc(bits & ((1u << lane) - 1)));
        if (sent)
          put_code(codes, offsets[number] + at, bytes,
                   static_cast<u32>(i - first) | (negative_sign(value) ? layout.negative : 0) |
                       (at + 1 == choice.kept ? layout.last : 0));
        if (rest != nullptr && sent)
          rest[i] = __fadd_rn(value, negative_sign(value) ? scale : -scale);
        else if (rest != nullptr && rest != g && i < end)
          rest[i] = value;
        written += static_cast<u32>(__popc(bits));
      }
    }
  }
}

constexpr u64 kCodeTile = 1024;

// How many bins end in each tile of codes; a warp each.
KERNEL void count_ends(const u8* codes, u64 number, u32 bytes, u64* tiles) {
  const u32 last = layout_of(bytes).last;
  const u64 number_of_tiles = (number + kCodeTile - 1) / kCodeTile;
  for (u64 tile = thread_index() / 32; tile < number_of_tiles; tile += thread_count() / 32) {
    u32 ends = 0;
    const u64 begin = tile * kCodeTile;
    for (u64 k = begin + threadIdx.x % 32; k < begin + kCodeTile && k < number; k += 32)
      ends += (get_code(codes, k, bytes) & last) != 0;
    ends = __reduce_add_sync(kAllLanes, ends);
    if (threadIdx.x % 32 == 0) tiles[tile] = ends;
  }
}

// Adds what the codes of all bins stand for, as far as they keep the rules; `used` becomes how many
// codes these are and stays as it is where they are cut off. `tiles` are those of count_ends,
// summed.
KERNEL void add_bins(const u8* codes, u64 number, u32 bytes, u64 bin, float scale, const u64* tiles,
                     float* out, u64 count, u64* used, u32* bad) {
  const BinLayout layout = layout_of(bytes);
  const u32 lane = threadIdx.x % 32;
  const u64 bins = (count + bin - 1) / bin;
  const u64 number_of_tiles = (number + kCodeTile - 1) / kCodeTile;
  for (u64 tile = thread_index() / 32; tile < number_of_tiles; tile += thread_count() / 32) {
    u64 bins_before = tiles[tile];
    for (u64 begin = tile * kCodeTile; begin < (tile + 1) * kCodeTile && begin < number;
         begin += 32) {
      const u64 k = begin + lane;
      const u32 code = k < number ? get_code(codes, k, bytes) : 0;
      const bool ends = (code & layout.last) != 0;
      const u32 bits = __ballot_sync(kAllLanes, ends);
      const u64 own = bins_before + static_cast<u64>(__popc(bits & ((1u << lane) - 1)));
      bins_before += static_cast<u64>(__popc(bits));
      if (k >= number || own >= bins) continue;
      const u32 previous = k == 0 ? layout.last : get_code(codes, k - 1, bytes);
      const bool first = (previous & layout.last) != 0;  // of its bin
      const u64 length = (own + 1) * bin <= count ? bin : count - own * bin;
      const u32 offset = code & layout.offset;
      const bool inside = offset < length;
      complain(bad, inside ? !first && offset <= (previous & layout.offset)
                           : code != layout.empty || !first);
      float* const to = out + own * bin + offset;
      if (inside) *to = __fadd_rn(*to, (code & layout.negative) != 0 ? -scale : scale);
      if (ends && own + 1 == bins) *used = k + 1;
    }
  }
}
