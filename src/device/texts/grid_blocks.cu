// uniform and qsgd, as kernel/grid_blocks.h has kMinMax ("shifted") and kMax: ranges of chunks,
// grids of blocks, codes.
// SPDX-License-Identifier: Apache-2.0

struct Range {
  float low, high;
};

struct BlockGrid {
  float mid, step, inverse;
};

// How values are coded, as device/coded_values.cc fills it in.
struct GridForm {
  u64 block;
  u32 bits, shifted;
  float levels;
  u32 random;           // whether codes are rounded at random: by the sequence of kernel/random_bits.h
  u32 key[2], step[2];  // of Philox, and the upper half of its counter
  u64 position;         // of the first value in the sequence
};

constexpr float kLeastStep = 1.17549435e-38f;  // 2^-126: its inverse is finite

// Of each chunk of at most kSumChunk values, `chunks` of them to a block; a warp each. A chunk
// without values has the range of its block's first value.
KERNEL void range_chunks(const float* x, u64 count, u64 block, u64 chunks, Range* ranges) {
  const u64 blocks = (count + block - 1) / block;
  for (u64 number = thread_index() / 32; number < blocks * chunks; number += thread_count() / 32) {
    const Place at = place_of(number / chunks, count, block, 0, 0);
    const float* values = x + at.begin;
    const u64 begin = number % chunks * kSumChunk;
    const u64 end = begin + kSumChunk < at.values ? begin + kSumChunk : at.values;
    Range range = {values[0], values[0]};
    for (u64 i = begin + threadIdx.x % 32; i < end; i += 32) {
      range.low = values[i] < range.low ? values[i] : range.low;
      range.high = values[i] > range.high ? values[i] : range.high;
    }
    for (u32 half = 16; half > 0; half /= 2) {
      const float low = __shfl_xor_sync(kAllLanes, range.low, half);
      const float high = __shfl_xor_sync(kAllLanes, range.high, half);
      range.low = low < range.low ? low : range.low;
      range.high = high > range.high ? high : range.high;
    }
    if (threadIdx.x % 32 == 0) ranges[number] = range;
  }
}

// Half of the codes: they lie on either side of the middle.
DEVICE float half_codes(u32 bits) { return static_cast<float>(1u << (bits - 1)); }

// Whether a grid about `mid` stays finite to its ends.
DEVICE bool reaches(float mid, float step, u32 bits) {
  const float ends = __fsub_rn(half_codes(bits), 0.5f);
  return finite(__fadd_rn(magnitude(mid), __fmul_rn(ends, step)));
}

DEVICE float inverse_of(float step) { return step == 0 ? 0.0f : __fdiv_rn(1.0f, step); }

DEVICE BlockGrid shifted_grid(Range range, u32 bits) {
  const float low = __fadd_rn(range.low, 0.0f), high = __fadd_rn(range.high, 0.0f);  // -0 is 0
  const float width = __fsub_rn(high, low);
  const float low_half = __fmul_rn(low, 0.5f), high_half = __fmul_rn(high, 0.5f);
  const float mid =
      finite(width) ? __fadd_rn(low, __fmul_rn(width, 0.5f)) : __fadd_rn(low_half, high_half);
  float step = __fdiv_rn(__fsub_rn(high_half, low_half), __fsub_rn(half_codes(bits), 0.5f));
  if (step < kLeastStep) step = 0;
  while (!reaches(mid, step, bits)) step = float_below(step);
  return {mid, step, inverse_of(step)};
}

DEVICE BlockGrid scaled_grid(Range range, u32 bits, float levels) {
  const float below = magnitude(range.low), above = magnitude(range.high);
  const float scale = __fdiv_rn(below > above ? below : above, levels);
  const float most_code = __fsub_rn(half_codes(bits), 1.0f);
  float step = scale < kLeastStep ? 0.0f : scale;
  if (!finite(__fmul_rn(step, most_code))) step = __fdiv_rn(3.40282347e+38f, most_code);
  if (!finite(__fmul_rn(step, most_code))) step = float_below(step);
  return {0, step, inverse_of(step)};
}

DEVICE u32 header_of(u32 shifted) { return shifted != 0 ? 8 : 4; }

// A thread per block.
KERNEL void make_grids(const Range* ranges, u64 count, u64 chunks, GridForm form, BlockGrid* grids,
                       u8* out) {
  const u64 blocks = (count + form.block - 1) / form.block;
  for (u64 number = thread_index(); number < blocks; number += thread_count()) {
    Range range = ranges[number * chunks];
    for (u64 i = 1; i < chunks; ++i) {
      const Range& other = ranges[number * chunks + i];
      range.low = other.low < range.low ? other.low : range.low;
      range.high = other.high > range.high ? other.high : range.high;
    }
    const BlockGrid grid = form.shifted != 0 ? shifted_grid(range, form.bits)
                                             : scaled_grid(range, form.bits, form.levels);
    grids[number] = grid;
    const u32 header = header_of(form.shifted);
    u8* at = out + place_of(number, count, form.block, form.bits, header).byte;
    if (form.shifted != 0) put32(at, __float_as_uint(grid.mid));
    put32(at + header - 4, __float_as_uint(grid.step));
  }
}

struct PhiloxBlock {
  u32 words[4];
};

// Philox4x32-10, as core/random.h has it.
DEVICE PhiloxBlock philox(const GridForm& form, u64 block) {
  u32 c[4] = {static_cast<u32>(block), static_cast<u32>(block >> 32), form.step[0], form.step[1]};
  u32 k[2] = {form.key[0], form.key[1]};
  for (u32 round = 0; round < 10; ++round) {
    const u64 product0 = u64{0xD2511F53u} * c[0], product1 = u64{0xCD9E8D57u} * c[2];
    const u32 high0 = static_cast<u32>(product0 >> 32), high1 = static_cast<u32>(product1 >> 32);
    c[0] = high1 ^ c[1] ^ k[0];
    c[2] = high0 ^ c[3] ^ k[1];
    c[1] = static_cast<u32>(product1);
    c[3] = static_cast<u32>(product0);
    k[0] += 0x9E3779B9u;
    k[1] += 0xBB67AE85u;
  }
  return {{c[0], c[1], c[2], c[3]}};
}

// 1.5 * 2^8: adding it to -128 <= t < 128 leaves t, in units of 2^-15, in the low bits.
constexpr float kFixedPoint = 384.0f;
constexpr u32 kFixedPointBits = 0x43C00000u;

// A thread per group of values, which reads what it writes: `rest` may be `x`.
KERNEL void quantise_grid(const float* x, u64 count, GridForm form, const BlockGrid* grids, u8* out,
                          float* rest) {
  const u64 per_block = (form.block + kGroup - 1) / kGroup;
  const u64 groups = (count + form.block - 1) / form.block * per_block;
  const u32 header = header_of(form.shifted), mask = (1u << form.bits) - 1;
  const float least = form.shifted != 0 ? -half_codes(form.bits) : -form.levels;
  const float most = form.shifted != 0 ? __fsub_rn(half_codes(form.bits), 1.0f) : form.levels;
  for (u64 group = thread_index(); group < groups; group += thread_count()) {
    const u64 number = group / per_block, begin = group % per_block * kGroup;
    const Place at = place_of(number, count, form.block, form.bits, header);
    if (begin >= at.values) continue;
    const BlockGrid grid = grids[number];
    const u32 n = group_size(at.values - begin);
    float values[kGroup], left[kGroup];
    load_group(x + at.begin + begin, n, values);
    PhiloxBlock draws = {};
    u64 codes = 0;
    for (u32 i = 0; i < n; ++i) {
      float t = form.shifted != 0
                    ? __fsub_rn(__fmul_rn(__fsub_rn(values[i], grid.mid), grid.inverse), 0.5f)
                    : __fmul_rn(values[i], grid.inverse);
      t = t > least ? t : least;
      t = t < most ? t : most;
      u32 bits;
      float code;
      if (form.random != 0) {
        const u64 position = form.position + at.begin + begin + i;
        if (i == 0 || position % 8 == 0) draws = philox(form, position / 8);
        const u32 half = draws.words[position % 8 / 2] >> position % 2 * 16 & 0xffff;
        const u32 fixed = __float_as_uint(__fadd_rn(t, kFixedPoint)) - kFixedPointBits;
        const i32 floor = static_cast<i32>(fixed + (half >> 1)) >> 15;
        code = static_cast<float>(floor);
        bits = static_cast<u32>(floor);
      } else {
        const float rounded = __fadd_rn(t, kWhole);
        code = __fsub_rn(rounded, kWhole);
        bits = __float_as_uint(rounded);
      }
      const float decoded =
          form.shifted != 0
              ? __fadd_rn(grid.mid, __fmul_rn(__fadd_rn(code, 0.5f), grid.step))
              : __fmul_rn(code, grid.step);
      codes |= static_cast<u64>(bits & mask) << i * form.bits;
      left[i] = __fsub_rn(values[i], decoded);
    }
    put_codes(out + at.byte + header + begin / kGroup * form.bits, codes,
              static_cast<u32>(code_bytes(n, form.bits)));
    if (rest != nullptr) store_group(rest + at.begin + begin, n, left);
  }
}

// Of kMinMax; scaled_blocks.cu reads the others.
KERNEL void add_grid(const u8* in, u64 count, u64 block, u32 bits, float weight, float* out,
                     u32* bad) {
  const u64 per_block = (block + kGroup - 1) / kGroup;
  const u64 groups = (count + block - 1) / block * per_block;
  const u32 mask = (1u << bits) - 1, sign = 1u << (bits - 1);
  for (u64 group = thread_index(); group < groups; group += thread_count()) {
    const u64 begin = group % per_block * kGroup;
    const Place at = place_of(group / per_block, count, block, bits, 8);
    if (begin >= at.values) continue;
    const float mid = __uint_as_float(get32(in + at.byte));
    const float step = __uint_as_float(get32(in + at.byte + 4));
    complain(bad, negative_sign(step) || !reaches(mid, step, bits));
    const u32 n = group_size(at.values - begin);
    const u64 codes = get_codes(in + at.byte + 8 + begin / kGroup * bits,
                                static_cast<u32>(code_bytes(n, bits)));
    float values[kGroup];
    float* to = out + at.begin + begin;
    load_group(to, n, values);
    for (u32 i = 0; i < n; ++i) {
      const u32 code = static_cast<u32>(codes >> i * bits) & mask;
      const i32 whole = static_cast<i32>(code ^ sign) - static_cast<i32>(sign);
      const float on_grid = __fmul_rn(__fadd_rn(static_cast<float>(whole), 0.5f), step);
      values[i] = __fadd_rn(values[i], __fmul_rn(__fadd_rn(mid, on_grid), weight));
    }
    store_group(to, n, values);
  }
}
