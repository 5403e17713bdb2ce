// What kernel texts take for granted, for a C++ compiler: texts/cuda_prelude.cu and CUDA's own
// functions, on the processor. Only host_kernels.cc includes it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "device/testing/host_threads.h"

// NOLINTBEGIN: names that CUDA has, reserved ones too
#define KERNEL [[maybe_unused]] static
#define DEVICE [[maybe_unused]] static inline
#define DEVICE_MEMBER inline
#define UNROLL
#define SUM_KERNEL KERNEL
#define SHARED static thread_local  // kernels run on several threads, block by block on each
#define threadIdx (::thinwire::device::host_place().thread)
#define blockIdx (::thinwire::device::host_place().block)
#define blockDim (::thinwire::device::host_place().threads)
#define gridDim (::thinwire::device::host_place().blocks)

namespace thinwire::device {

using u8 = uint8_t;
using u16 = uint16_t;
using u32 = uint32_t;
using u64 = uint64_t;
using i32 = int32_t;

constexpr u32 kAllLanes = 0xffffffffu;

DEVICE bool aligned(const void* at, u32 bytes) { return std::bit_cast<u64>(at) % bytes == 0; }
DEVICE void put16(u8* at, u32 bits) {
  const auto low = static_cast<u16>(bits);
  std::memcpy(at, &low, sizeof low);
}
DEVICE void put32(u8* at, u32 bits) { std::memcpy(at, &bits, sizeof bits); }
DEVICE u32 get16(const u8* at) {
  u16 bits;
  std::memcpy(&bits, at, sizeof bits);
  return bits;
}
DEVICE u32 get32(const u8* at) {
  u32 bits;
  std::memcpy(&bits, at, sizeof bits);
  return bits;
}
DEVICE void load8(const float* from, float* to) { std::memcpy(to, from, 8 * sizeof(float)); }
DEVICE void store8(float* to, const float* from) { std::memcpy(to, from, 8 * sizeof(float)); }

// Rounded once each: the build has -ffp-contract=off.
DEVICE float __fadd_rn(float a, float b) { return a + b; }
DEVICE float __fsub_rn(float a, float b) { return a - b; }
DEVICE float __fmul_rn(float a, float b) { return a * b; }
DEVICE float __fdiv_rn(float a, float b) { return a / b; }
DEVICE double __dadd_rn(double a, double b) { return a + b; }
DEVICE double __dsub_rn(double a, double b) { return a - b; }
DEVICE double __dmul_rn(double a, double b) { return a * b; }
DEVICE double __ddiv_rn(double a, double b) { return a / b; }
DEVICE u32 __float_as_uint(float x) { return std::bit_cast<u32>(x); }
DEVICE float __uint_as_float(u32 x) { return std::bit_cast<float>(x); }
DEVICE long long __double_as_longlong(double x) { return std::bit_cast<long long>(x); }
DEVICE double __longlong_as_double(long long x) { return std::bit_cast<double>(x); }
DEVICE int __popc(u32 x) { return std::popcount(x); }
DEVICE int __clz(i32 x) { return std::countl_zero(static_cast<u32>(x)); }

// Threads that meet.
DEVICE void __syncthreads() { host_meet(Meeting::kBlock); }
DEVICE void __syncwarp(u32 = kAllLanes) { host_meet(Meeting::kWarp); }

// What every lane of the warp gives to all. REQUIRES, as in the texts: all lanes take part.
template <class T>
DEVICE WarpValues<T> warp_values(T mine) {
  return host_share(mine);
}

DEVICE u32 __reduce_max_sync(u32, u32 mine) {
  u32 max = 0;
  for (const u32 one : warp_values(mine)) max = one > max ? one : max;
  return max;
}
DEVICE u32 __reduce_add_sync(u32, u32 mine) {
  u32 sum = 0;
  for (const u32 one : warp_values(mine)) sum += one;
  return sum;
}
DEVICE u32 __ballot_sync(u32, bool mine) {
  u32 bits = 0, lane = 0;
  for (const bool one : warp_values(mine)) bits |= u32{one} << lane++;
  return bits;
}
template <class T>
DEVICE T __shfl_xor_sync(u32, T mine, u32 other) {
  return warp_values(mine)[(threadIdx.x % 32) ^ other];
}
template <class T>
DEVICE T __shfl_sync(u32, T mine, u32 lane) {
  return warp_values(mine)[lane];
}
template <class T>
DEVICE T __shfl_up_sync(u32, T mine, u32 by) {
  const u32 lane = threadIdx.x % 32;
  return warp_values(mine)[lane < by ? lane : lane - by];
}

template <class T>
DEVICE T atomicAdd(T* at, T more) {
  const T was = *at;
  *at += more;
  return was;
}
DEVICE u32 atomicMax(u32* at, u32 other) {
  const u32 was = *at;
  if (other > was) *at = other;
  return was;
}
DEVICE u32 atomicOr(u32* at, u32 bits) {
  const u32 was = *at;
  *at |= bits;
  return was;
}

}  // namespace thinwire::device
// NOLINTEND
