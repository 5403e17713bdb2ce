// What all texts share: where a thread stands, bits of floats, packed codes.
// SPDX-License-Identifier: Apache-2.0

// Every text is CUDA C++ and plain C++ at the same time: no header, no template of a library.
// Arithmetic that decides bits is written by the intrinsics that round once (__fadd_rn and its
// like), so that no compiler fuses or reorders it.

DEVICE u64 thread_index() { return static_cast<u64>(blockIdx.x) * blockDim.x + threadIdx.x; }
DEVICE u64 thread_count() { return static_cast<u64>(gridDim.x) * blockDim.x; }

constexpr u32 kMagnitude = 0x7fffffffu;
constexpr u32 kInfinity = 0x7f800000u;

DEVICE u32 magnitude_bits(float x) { return __float_as_uint(x) & kMagnitude; }
DEVICE float magnitude(float x) { return __uint_as_float(magnitude_bits(x)); }
DEVICE bool finite(float x) { return magnitude_bits(x) < kInfinity; }
DEVICE bool negative_sign(float x) { return __float_as_uint(x) >> 31 != 0; }
// The neighbour of x > 0 towards 0.
DEVICE float float_below(float x) { return __uint_as_float(__float_as_uint(x) - 1); }

DEVICE bool finite64(double x) {
  return (static_cast<u64>(__double_as_longlong(x)) >> 52 & 0x7ff) != 0x7ff;
}

// Remembers in `bad` that something was wrong. Threads may write at once: they write the same.
DEVICE void complain(u32* bad, bool wrong) {
  if (wrong) *bad = 1;
}

DEVICE u64 code_bytes(u64 count, u32 bits) { return (count * bits + 7) / 8; }

// Eight codes of at most eight bits, packed from bit 0 up, at any address.
DEVICE void put_codes(u8* at, u64 codes, u32 bytes) {
  if (bytes == 8 && aligned(at, 4)) {
    put32(at, static_cast<u32>(codes));
    put32(at + 4, static_cast<u32>(codes >> 32));
  } else if (bytes == 4 && aligned(at, 4)) {
    put32(at, static_cast<u32>(codes));
  } else {
    for (u32 i = 0; i < bytes; ++i) at[i] = static_cast<u8>(codes >> 8 * i);
  }
}

DEVICE u64 get_codes(const u8* at, u32 bytes) {
  if (bytes == 8 && aligned(at, 4)) return get32(at) | static_cast<u64>(get32(at + 4)) << 32;
  if (bytes == 4 && aligned(at, 4)) return get32(at);
  u64 codes = 0;
  for (u32 i = 0; i < bytes; ++i) codes |= static_cast<u64>(at[i]) << 8 * i;
  return codes;
}

// A block of values and its bytes: a header, then codes from a whole byte on. No values where there
// is no such block.
struct Place {
  u64 begin, values, byte;
};

DEVICE Place place_of(u64 number, u64 count, u64 block, u32 bits, u32 header) {
  const u64 begin = number * block;
  if (begin >= count) return {count, 0, 0};
  return {begin, count - begin < block ? count - begin : block,
          number * (header + code_bytes(block, bits))};
}

constexpr u32 kGroup = 8;  // values whose codes fill whole bytes, whatever their bits

// How many of a group there are, of `left` values.
DEVICE u32 group_size(u64 left) { return left < kGroup ? static_cast<u32>(left) : kGroup; }

// The first n values of a group; the others become 0, or stay as they are.
DEVICE void load_group(const float* from, u32 n, float* group) {
  if (n == kGroup) return load8(from, group);
  for (u32 i = 0; i < kGroup; ++i) group[i] = i < n ? from[i] : 0.0f;
}
DEVICE void store_group(float* to, u32 n, const float* group) {
  if (n == kGroup) return store8(to, group);
  UNROLL for (u32 i = 0; i < kGroup; ++i)
    if (i < n) to[i] = group[i];
}

// 1.5 * 2^23: adding it to |t| <= 2^22 rounds t to the nearest whole number, ties to even, which
// then stands in the low bits in two's complement.
constexpr float kWhole = 12582912.0f;

// Sums in the order of docs/determinism.md. Position i of a chunk of 8192 values is added to lane i
// mod 16; so half a warp takes a chunk, and two chunks share a warp.
constexpr u32 kSumLanes = 16;
constexpr u64 kSumChunk = 8192;

DEVICE u32 sum_lane() { return threadIdx.x % kSumLanes; }
DEVICE u32 half_of_warp() { return threadIdx.x / kSumLanes % 2; }

struct SumChunk {
  u64 number, begin, end;  // values begin .. end - 1
  bool exists;
};

// Half a warp takes each chunk of `count` values. Both halves visit equally often, since all lanes
// of a warp fold together: after an odd number of chunks one half gets a chunk that does not exist
// and has no values.
template <class Visit>
DEVICE void for_sum_chunks(u64 count, const Visit& visit) {
  const u64 chunks = (count + kSumChunk - 1) / kSumChunk;
  for (u64 pair = thread_index() / 32 * 2; pair < chunks; pair += thread_count() / 32 * 2) {
    const u64 number = pair + half_of_warp(), begin = number * kSumChunk;
    visit(SumChunk{number, begin, begin + kSumChunk < count ? begin + kSumChunk : count,
                   number < chunks});
  }
}

// A lane's reads of memory that are on their way at once. One after another, those of a chunk would
// take 0.2 ms.
constexpr u32 kAhead = 16;

// The positions of a lane from `begin` to `end` in their order: `load(i)`, for several at a time,
// and `use(i, loaded)` of each.
template <class Loaded, class Load, class Use>
DEVICE void for_lane(u64 begin, u64 end, const Load& load, const Use& use) {
  constexpr u32 kLoads = sizeof(Loaded) <= 8 ? 2 * kAhead : kAhead;
  u64 i = begin + sum_lane();
  for (; i + (kLoads - 1) * kSumLanes < end; i += kLoads * kSumLanes) {
    Loaded ahead[kLoads];
    UNROLL for (u32 k = 0; k < kLoads; ++k) ahead[k] = load(i + k * kSumLanes);
    UNROLL for (u32 k = 0; k < kLoads; ++k) use(i + k * kSumLanes, ahead[k]);
  }
  for (; i < end; i += kSumLanes) use(i, load(i));
}

// A lane's values of the 32 * kAhead from `begin` on, position begin + lane + 32 k as `values[k]`;
// 0 from `end` on.
DEVICE void load_ahead(const float* x, u64 begin, u64 end, float* values) {
  UNROLL for (u32 k = 0; k < kAhead; ++k) {
    const u64 i = begin + 32 * k + threadIdx.x % 32;
    values[k] = i < end ? x[i] : 0.0f;
  }
}

// Lanes are folded in halves. A sum of two has the same bits either way around, so all lanes end
// with the sum.
DEVICE double fold_lanes(double sum) {
  for (u32 half = kSumLanes / 2; half > 0; half /= 2)
    sum = __dadd_rn(sum, __shfl_xor_sync(kAllLanes, sum, half));
  return sum;
}

DEVICE u32 fold_counts(u32 sum) {
  for (u32 half = kSumLanes / 2; half > 0; half /= 2)
    sum += __shfl_xor_sync(kAllLanes, sum, half);
  return sum;
}

DEVICE u32 fold_max(u32 max) {
  for (u32 half = kSumLanes / 2; half > 0; half /= 2) {
    const u32 other = __shfl_xor_sync(kAllLanes, max, half);
    max = other > max ? other : max;
  }
  return max;
}

// Adds what chunks came to in their order, in one block of kFold threads: they fetch, and one adds.
constexpr u32 kFold = 256;
template <class Chunk, class Total>
DEVICE void fold_in_order(const Chunk* chunks, u64 count, Total* total) {
  SHARED Chunk here[kFold];
  Total sum = {};
  for (u64 begin = 0; begin < count; begin += kFold) {
    const u64 n = count - begin < kFold ? count - begin : kFold;
    if (threadIdx.x < n) here[threadIdx.x] = chunks[begin + threadIdx.x];
    __syncthreads();
    if (threadIdx.x == 0 && n == kFold) {
      for (u32 first = 0; first < kFold; first += 16) {
        UNROLL for (u32 i = 0; i < 16; ++i) add_chunk(sum, here[first + i]);
      }
    } else if (threadIdx.x == 0) {
      for (u32 i = 0; i < n; ++i) add_chunk(sum, here[i]);
    }
    __syncthreads();
  }
  if (threadIdx.x == 0) *total = sum;
}
