// What texts take for granted, for NVRTC. testing/host_threads.h says the same for a C++ compiler.
// SPDX-License-Identifier: Apache-2.0
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef int i32;

#define KERNEL extern "C" __global__
// Of sums, with work_grid.h's sum_grid. Told that blocks are small, the compiler spends registers
// on reads that are on their way at once.
#define SUM_KERNEL extern "C" __global__ __launch_bounds__(64, 1)
#define DEVICE static __device__ __forceinline__
#define DEVICE_MEMBER __device__ __forceinline__
#define SHARED __shared__
#define UNROLL _Pragma("unroll")

constexpr u32 kAllLanes = 0xffffffffu;

// Numbers at any address, little endian.
DEVICE bool aligned(const void* at, u32 bytes) { return reinterpret_cast<u64>(at) % bytes == 0; }

DEVICE void put16(u8* at, u32 bits) {
  if (aligned(at, 2)) {
    *reinterpret_cast<u16*>(at) = static_cast<u16>(bits);
  } else {
    at[0] = static_cast<u8>(bits);
    at[1] = static_cast<u8>(bits >> 8);
  }
}

DEVICE void put32(u8* at, u32 bits) {
  if (aligned(at, 4)) {
    *reinterpret_cast<u32*>(at) = bits;
  } else {
    for (u32 i = 0; i < 4; ++i) at[i] = static_cast<u8>(bits >> 8 * i);
  }
}

DEVICE u32 get16(const u8* at) {
  if (aligned(at, 2)) return *reinterpret_cast<const u16*>(at);
  return at[0] | static_cast<u32>(at[1]) << 8;
}

DEVICE u32 get32(const u8* at) {
  if (aligned(at, 4)) return *reinterpret_cast<const u32*>(at);
  u32 bits = 0;
  for (u32 i = 0; i < 4; ++i) bits |= static_cast<u32>(at[i]) << 8 * i;
  return bits;
}

// Eight neighbours, by two loads of 16 bytes where they lie so.
DEVICE void load8(const float* from, float* to) {
  if (aligned(from, 16)) {
    const float4 low = reinterpret_cast<const float4*>(from)[0];
    const float4 high = reinterpret_cast<const float4*>(from)[1];
    to[0] = low.x, to[1] = low.y, to[2] = low.z, to[3] = low.w;
    to[4] = high.x, to[5] = high.y, to[6] = high.z, to[7] = high.w;
  } else {
    for (u32 i = 0; i < 8; ++i) to[i] = from[i];
  }
}

// By name, because the compiler takes stores of float4 apart where their values come from selects.
DEVICE void store4(float* to, const float* from) {
  asm volatile("st.v4.f32 [%0], {%1, %2, %3, %4};"
               :
               : "l"(to), "f"(from[0]), "f"(from[1]), "f"(from[2]), "f"(from[3])
               : "memory");
}

DEVICE void store8(float* to, const float* from) {
  if (aligned(to, 16)) {
    store4(to, from);
    store4(to + 4, from + 4);
  } else {
    for (u32 i = 0; i < 8; ++i) to[i] = from[i];
  }
}
