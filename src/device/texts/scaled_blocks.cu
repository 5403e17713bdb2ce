// int8 and int4, as kernel/scaled_blocks.h: a warp per block of values, eight values at a time to a
// lane. `rest` may be the values: all lanes have read them once when the largest magnitude is
// known, and then a lane reads what it writes.
// SPDX-License-Identifier: Apache-2.0

DEVICE float scale_of(float max, float largest_code) {
  const float scale = __fdiv_rn(max, largest_code);
  if (scale < 1.17549435e-38f) return 0;  // 2^-126: the inverse would overflow
  return finite(__fmul_rn(scale, largest_code)) ? scale : float_below(scale);
}

KERNEL void quantise_blocks(const float* x, u64 count, u64 block, u32 bits, u8* out, float* rest) {
  const u32 lane = threadIdx.x % 32;
  const u64 blocks = (count + block - 1) / block;
  const float largest_code = static_cast<float>((1u << (bits - 1)) - 1);
  const u32 mask = (1u << bits) - 1;
  for (u64 number = thread_index() / 32; number < blocks; number += thread_count() / 32) {
    const Place at = place_of(number, count, block, bits, 4);
    const float* values = x + at.begin;
    u32 max = 0;
    for (u64 i = lane; i < at.values; i += 32) {
      const u32 one = magnitude_bits(values[i]);
      max = one > max ? one : max;
    }
    const float scale = scale_of(__uint_as_float(__reduce_max_sync(kAllLanes, max)), largest_code);
    const float inverse = scale == 0 ? 0.0f : __fdiv_rn(1.0f, scale);
    if (lane == 0) put32(out + at.byte, __float_as_uint(scale));
    for (u64 begin = u64{lane} * kGroup; begin < at.values; begin += 32 * kGroup) {
      const u32 n = group_size(at.values - begin);
      float group[kGroup], left[kGroup];
      load_group(values + begin, n, group);
      u64 codes = 0;
      for (u32 i = 0; i < kGroup; ++i) {
        const float rounded = __fadd_rn(__fmul_rn(group[i], inverse), kWhole);
        codes |= static_cast<u64>(__float_as_uint(rounded) & mask) << i * bits;
        left[i] = __fsub_rn(group[i], __fmul_rn(__fsub_rn(rounded, kWhole), scale));
      }
      put_codes(out + at.byte + 4 + begin / kGroup * bits, codes,
                static_cast<u32>(code_bytes(n, bits)));
      if (rest != nullptr) store_group(rest + at.begin + begin, n, left);
    }
  }
}

KERNEL void add_blocks(const u8* in, u64 count, u64 block, u32 bits, float weight, float* out,
                       u32* bad) {
  const u32 lane = threadIdx.x % 32;
  const u64 blocks = (count + block - 1) / block;
  const float largest_code = static_cast<float>((1u << (bits - 1)) - 1);
  const u32 mask = (1u << bits) - 1, sign = 1u << (bits - 1);
  for (u64 number = thread_index() / 32; number < blocks; number += thread_count() / 32) {
    const Place at = place_of(number, count, block, bits, 4);
    const float scale = __uint_as_float(get32(in + at.byte));
    complain(bad, negative_sign(scale) || !finite(__fmul_rn(scale, largest_code)));
    const float weighted = __fmul_rn(weight, scale);
    for (u64 begin = u64{lane} * kGroup; begin < at.values; begin += 32 * kGroup) {
      const u32 n = group_size(at.values - begin);
      const u64 codes = get_codes(in + at.byte + 4 + begin / kGroup * bits,
                                  static_cast<u32>(code_bytes(n, bits)));
      float group[kGroup];
      float* to = out + at.begin + begin;
      load_group(to, n, group);
      for (u32 i = 0; i < n; ++i) {
        const u32 code = static_cast<u32>(codes >> i * bits) & mask;
        complain(bad, code == sign);  // -m - 1
        const i32 whole = static_cast<i32>(code ^ sign) - static_cast<i32>(sign);
        group[i] = __fadd_rn(group[i], __fmul_rn(static_cast<float>(whole), weighted));
      }
      store_group(to, n, group);
    }
  }
}
