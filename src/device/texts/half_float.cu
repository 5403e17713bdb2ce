// fp16 and bf16, as kernel/half_float.h: a thread per value.
// SPDX-License-Identifier: Apache-2.0

struct Bfloat {
  static constexpr u32 kExponent = 0x7F80;

  DEVICE u32 encode(float x) {
    const u32 u = __float_as_uint(x);
    if (magnitude_bits(x) > kInfinity) return u >> 16 | 0x0040;
    return (u + (u >> 16 & 1) + 0x7FFF) >> 16;
  }
  DEVICE float decode(u32 bits) { return __uint_as_float(bits << 16); }
};

struct Half {
  static constexpr u32 kExponent = 0x7C00;

  // By integers, as the SIMD kernels do where the machine has no instruction: the bits are the
  // same.
  DEVICE u32 encode(float x) {
    const u32 u = magnitude_bits(x);
    const u32 sign = __float_as_uint(x) >> 31 << 15;
    if (u > kInfinity) return sign | 0x7E00 | (u >> 13 & 0x3FF);
    if (u >= 143u << 23) return sign | kExponent;  // 65536 and more
    if (u >= 113u << 23) return sign | (u - (112u << 23) + 0xFFF + (u >> 13 & 1)) >> 13;
    // In 0.5 + |x| the last place is worth 2^-24, that of a subnormal half, so the addition rounds.
    return sign | (__float_as_uint(__fadd_rn(__uint_as_float(u), 0.5f)) - __float_as_uint(0.5f));
  }
  DEVICE float decode(u32 bits) {
    const u32 sign = bits >> 15 << 31;
    const u32 u = (bits & 0x7FFF) << 13;
    if (u > kExponent << 13) return __uint_as_float(sign | kInfinity | 0x00400000 | u);
    if (u == kExponent << 13) return __uint_as_float(sign | kInfinity);
    if (u >= 1u << 23) return __uint_as_float(sign | (u + (112u << 23)));
    // Subnormals: the exponent of 2^-14 and an implicit one, which is then taken away.
    const float one = __uint_as_float(113u << 23);
    return __uint_as_float(sign |
                           __float_as_uint(__fsub_rn(__uint_as_float(u + (113u << 23)), one)));
  }
};

template <class Format>
DEVICE void encode(const float* x, u64 count, u8* out, float* rest) {
  for (u64 i = thread_index(); i < count; i += thread_count()) {
    const float value = x[i];
    u32 bits = Format::encode(value);
    if ((bits & 0x7FFF) == Format::kExponent) --bits;  // the largest finite one for an infinity
    put16(out + 2 * i, bits);
    if (rest != nullptr) rest[i] = __fsub_rn(value, Format::decode(bits));
  }
}

template <class Format>
DEVICE void add(const u8* in, u64 count, float weight, float* out, u32* bad) {
  for (u64 i = thread_index(); i < count; i += thread_count()) {
    const u32 bits = get16(in + 2 * i);
    out[i] = __fadd_rn(out[i], __fmul_rn(weight, Format::decode(bits)));
    complain(bad, (bits & Format::kExponent) == Format::kExponent);
  }
}

// The same at these positions, which differ; values are finite.
template <class Format>
DEVICE void add_at(const u32* positions, const u8* in, u64 kept, float weight, float* out) {
  for (u64 k = thread_index(); k < kept; k += thread_count()) {
    float* const to = out + positions[k];
    *to = __fadd_rn(*to, __fmul_rn(weight, Format::decode(get16(in + 2 * k))));
  }
}

KERNEL void encode_half(const float* x, u64 count, u8* out, float* rest) {
  encode<Half>(x, count, out, rest);
}
KERNEL void encode_bfloat(const float* x, u64 count, u8* out, float* rest) {
  encode<Bfloat>(x, count, out, rest);
}
KERNEL void add_half(const u8* in, u64 count, float weight, float* out, u32* bad) {
  add<Half>(in, count, weight, out, bad);
}
KERNEL void add_bfloat(const u8* in, u64 count, float weight, float* out, u32* bad) {
  add<Bfloat>(in, count, weight, out, bad);
}
KERNEL void add_half_at(const u32* positions, const u8* in, u64 kept, float weight, float* out) {
  add_at<Half>(positions, in, kept, weight, out);
}
KERNEL void add_bfloat_at(const u32* positions, const u8* in, u64 kept, float weight, float* out) {
  add_at<Bfloat>(positions, in, kept, weight, out);
}
