// sign, onebit and signum, as kernel/two_levels.h and codec/signum.cc.
// SPDX-License-Identifier: Apache-2.0

struct Levels {
  float high, low;
};

struct LevelSums {
  double above, below;
  u64 negatives;
};

DEVICE void add_level(float value, bool means, float& above, float& below, u32& negatives) {
  if (!means) {
    above = __fadd_rn(above, magnitude(value));
  } else if (value < 0) {
    below = __fadd_rn(below, value);
    ++negatives;
  } else {
    above = __fadd_rn(above, value);
  }
}

// The sums of a chunk of at most kSumChunk values, the same in all lanes of half a warp. Each lane
// adds in float for 32 values and then in double. All lanes of the warp call it.
DEVICE LevelSums chunk_sums(const float* x, u64 count, bool means) {
  LevelSums sums = {0, 0, 0};
  u32 negatives = 0;
  for (u64 begin = 0; begin < count; begin += 512) {
    const u64 end = begin + 512 < count ? begin + 512 : count;
    float above = 0, below = 0;
    for_lane<float>(
        begin, end, [&](u64 i) { return x[i]; },
        [&](u64, float value) { add_level(value, means, above, below, negatives); });
    sums.above = __dadd_rn(sums.above, above);
    sums.below = __dadd_rn(sums.below, below);
  }
  return {fold_lanes(sums.above), fold_lanes(sums.below), fold_counts(negatives)};
}

// Where 32 values of a lane overflow a float.
DEVICE LevelSums sums_of_huge(const float* x, u64 count, bool means) {
  LevelSums sums = {0, 0, 0};
  for (u64 i = 0; i < count; ++i) {
    const bool negative = x[i] < 0;
    if (!means)
      sums.above = __dadd_rn(sums.above, magnitude(x[i]));
    else if (negative)
      sums.below = __dadd_rn(sums.below, x[i]);
    else
      sums.above = __dadd_rn(sums.above, x[i]);
    sums.negatives += negative;
  }
  return sums;
}

DEVICE float mean_of(double sum, u64 count) {
  return count == 0 ? 0.0f : static_cast<float>(__ddiv_rn(sum, static_cast<double>(count)));
}

DEVICE Levels levels_of(LevelSums sums, const float* x, u64 count, bool means) {
  if (!finite64(__dsub_rn(sums.above, sums.below))) sums = sums_of_huge(x, count, means);
  if (means)
    return {mean_of(sums.above, count - sums.negatives), mean_of(sums.below, sums.negatives)};
  const float high = mean_of(sums.above, count);
  return {high, -high};
}

DEVICE void put_levels(u8* at, Levels levels, bool means) {
  put32(at, __float_as_uint(levels.high));
  if (means) put32(at + 4, __float_as_uint(levels.low));
}

// A block of at most kAhead * kSumLanes values, which stay in the lanes' registers. The zeros
// behind its end change no sum.
DEVICE void encode_held(const float* values, const Place& at, bool means, u32 header, u8* out, float* rest) {
  const u32 lane = sum_lane();
  float held[kAhead];
  UNROLL for (u32 k = 0; k < kAhead; ++k)
    held[k] = k * kSumLanes + lane < at.values ? values[k * kSumLanes + lane] : 0.0f;
  float above = 0, below = 0;
  u32 negatives = 0;
  UNROLL for (u32 k = 0; k < kAhead; ++k) add_level(held[k], means, above, below, negatives);
  const LevelSums sums = {fold_lanes(above), fold_lanes(below), fold_counts(negatives)};
  const Levels levels = levels_of(sums, values, at.values, means);
  __syncwarp();  // `rest` may be what others have just read
  u32 own_bits = 0;  // lane k stores those of round k
  UNROLL for (u32 k = 0; k < kAhead; ++k) {
    const bool negative = held[k] < 0;
    const u32 bits = __ballot_sync(kAllLanes, negative) >> kSumLanes * half_of_warp();
    own_bits = lane == k ? bits & 0xffff : own_bits;
    held[k] = __fsub_rn(held[k], negative ? levels.low : levels.high);
  }
  if (lane == 0 && at.values > 0) put_levels(out + at.byte, levels, means);
  const u64 bytes = code_bytes(at.values, 1);
  u8* const bits_out = out + at.byte + header;
  if (2 * lane + 1 < bytes)
    put16(bits_out + 2 * lane, own_bits);
  else if (2 * lane < bytes)
    bits_out[2 * lane] = static_cast<u8>(own_bits);
  if (rest == nullptr) return;
  UNROLL for (u32 k = 0; k < kAhead; ++k)
    if (k * kSumLanes + lane < at.values) rest[at.begin + k * kSumLanes + lane] = held[k];
}

// Blocks of at most kSumChunk values: half a warp each, all in one pass. `rest` may be `x`: the
// lanes of a warp meet between the last look at the values of others and the first write.
KERNEL void encode_levels(const float* x, u64 count, u64 block, u32 means, u8* out, float* rest) {
  const u32 header = means != 0 ? 8 : 4;
  const u32 lane = sum_lane();
  const u64 blocks = (count + block - 1) / block;
  const u64 most = block < count ? block : count;
  for (u64 pair = thread_index() / 32 * 2; pair < blocks; pair += thread_count() / 32 * 2) {
    const Place at = place_of(pair + half_of_warp(), count, block, 1, header);
    const float* values = x + at.begin;
    if (most <= kAhead * kSumLanes) {  // alike for all blocks
      encode_held(values, at, means != 0, header, out, rest);
      continue;
    }
    const LevelSums sums = chunk_sums(values, at.values, means != 0);
    const Levels levels = levels_of(sums, values, at.values, means != 0);
    __syncwarp();
    if (lane == 0 && at.values > 0) put_levels(out + at.byte, levels, means != 0);
    const u64 bytes = code_bytes(at.values, 1);
    u8* bits_out = out + at.byte + header;
    for (u64 first = 0; first < most; first += kSumLanes) {
      const u64 i = first + lane;
      const bool here = i < at.values;
      const float value = here ? values[i] : 0.0f;
      const bool negative = value < 0;
      const u32 bits = __ballot_sync(kAllLanes, negative) >> kSumLanes * half_of_warp();
      const u64 byte = first / 8;
      if (lane == 0 && byte + 1 < bytes)
        put16(bits_out + byte, bits & 0xffff);
      else if (lane == 0 && byte < bytes)
        bits_out[byte] = static_cast<u8>(bits);
      if (here && rest != nullptr)
        rest[at.begin + i] = __fsub_rn(value, negative ? levels.low : levels.high);
    }
  }
}

// Longer blocks, in three passes: sums of chunks, `chunks` of them to a block; levels; bits.
SUM_KERNEL void level_chunks(const float* x, u64 count, u64 block, u64 chunks, u32 means,
                         LevelSums* sums) {
  const u64 blocks = (count + block - 1) / block;
  for (u64 pair = thread_index() / 32 * 2; pair < blocks * chunks;
       pair += thread_count() / 32 * 2) {
    const u64 number = pair + half_of_warp();
    const Place at = place_of(number / chunks, count, block, 1, 0);
    const u64 skip = number % chunks * kSumChunk;
    const u64 left = skip < at.values ? at.values - skip : 0;
    const LevelSums of_chunk =
        chunk_sums(x + at.begin + (left > 0 ? skip : 0), left < kSumChunk ? left : kSumChunk, means != 0);
    if (sum_lane() == 0 && number < blocks * chunks) sums[number] = of_chunk;
  }
}

DEVICE void add_chunk(LevelSums& sum, const LevelSums& chunk) {
  sum.above = __dadd_rn(sum.above, chunk.above);
  sum.below = __dadd_rn(sum.below, chunk.below);
  sum.negatives += chunk.negatives;
}

// A block of kFold threads adds the sums of a block's chunks in order.
KERNEL void level_headers(const float* x, u64 count, u64 block, u64 chunks, u32 means,
                          const LevelSums* sums, Levels* levels, u8* out) {
  const u32 header = means != 0 ? 8 : 4;
  const u64 blocks = (count + block - 1) / block;
  for (u64 number = blockIdx.x; number < blocks; number += gridDim.x) {
    const Place at = place_of(number, count, block, 1, header);
    LevelSums total = {0, 0, 0};
    fold_in_order(sums + number * chunks, (at.values + kSumChunk - 1) / kSumChunk, &total);
    if (threadIdx.x != 0) continue;
    levels[number] = levels_of(total, x + at.begin, at.values, means != 0);
    put_levels(out + at.byte, levels[number], means != 0);
  }
}

// A thread per byte, eight values of a block.
KERNEL void pack_levels(const float* x, u64 count, u64 block, u32 means, const Levels* levels,
                        u8* out, float* rest) {
  const u32 header = means != 0 ? 8 : 4;
  const u64 per_block = code_bytes(block, 1), blocks = (count + block - 1) / block;
  for (u64 byte = thread_index(); byte < blocks * per_block; byte += thread_count()) {
    const u64 number = byte / per_block;
    const Place at = place_of(number, count, block, 1, header);
    const u64 begin = byte % per_block * 8;
    if (begin >= at.values) continue;
    const Levels two = levels[number];
    const u32 n = group_size(at.values - begin);
    float values[kGroup];
    load_group(x + at.begin + begin, n, values);
    u32 bits = 0;
    UNROLL for (u32 i = 0; i < kGroup; ++i) {
      const bool negative = values[i] < 0;
      bits |= static_cast<u32>(negative) << i;
      values[i] = __fsub_rn(values[i], negative ? two.low : two.high);
    }
    out[at.byte + header + begin / 8] = static_cast<u8>(bits);
    if (rest != nullptr) store_group(rest + at.begin + begin, n, values);
  }
}

KERNEL void add_levels(const u8* in, u64 count, u64 block, u32 means, float weight, float* out,
                       u32* bad) {
  const u32 header = means != 0 ? 8 : 4;
  const u64 per_block = code_bytes(block, 1), blocks = (count + block - 1) / block;
  for (u64 byte = thread_index(); byte < blocks * per_block; byte += thread_count()) {
    const Place at = place_of(byte / per_block, count, block, 1, header);
    const u64 begin = byte % per_block * 8;
    if (begin >= at.values) continue;
    const float high = __uint_as_float(get32(in + at.byte));
    const float low = means != 0 ? __uint_as_float(get32(in + at.byte + 4)) : -high;
    complain(bad, !finite(high) || negative_sign(high) || !finite(low) || !(low <= 0));
    const float up = __fmul_rn(weight, high), down = __fmul_rn(weight, low);
    const u32 bits = in[at.byte + header + begin / 8];
    const u32 n = group_size(at.values - begin);
    float* const to = out + at.begin + begin;
    float values[kGroup];
    load_group(to, n, values);
    UNROLL for (u32 i = 0; i < kGroup; ++i)
      values[i] = __fadd_rn(values[i], (bits >> i & 1) != 0 ? down : up);
    store_group(to, n, values);
  }
}

// signum. A zero is positive where its index plus `first` is even: `first` is the stream's position
// plus the step.
KERNEL void encode_signs(const float* x, u64 count, u64 first, u8* out, float* rest) {
  for (u64 byte = thread_index(); byte < code_bytes(count, 1); byte += thread_count()) {
    const u32 n = group_size(count - byte * kGroup);
    float values[kGroup];
    load_group(x + byte * kGroup, n, values);
    u32 bits = 0;
    UNROLL for (u32 i = 0; i < kGroup; ++i) {
      const bool odd = (first + byte * kGroup + i) % 2 != 0;
      const bool negative = values[i] < 0 || (values[i] == 0 && odd);
      bits |= static_cast<u32>(negative && i < n) << i;
      values[i] = __fsub_rn(values[i], negative ? -1.0f : 1.0f);
    }
    out[byte] = static_cast<u8>(bits);
    if (rest != nullptr) store_group(rest + byte * kGroup, n, values);
  }
}

KERNEL void add_signs(const u8* in, u64 count, float weight, float* out) {
  for (u64 byte = thread_index(); byte < code_bytes(count, 1); byte += thread_count()) {
    const u32 n = group_size(count - byte * kGroup), bits = in[byte];
    float* const to = out + byte * kGroup;
    float values[kGroup];
    load_group(to, n, values);
    UNROLL for (u32 i = 0; i < kGroup; ++i)
      values[i] = __fadd_rn(values[i], (bits >> i & 1) != 0 ? -weight : weight);
    store_group(to, n, values);
  }
}
