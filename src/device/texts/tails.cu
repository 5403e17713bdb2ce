// The tail above a threshold, and products for sums of logarithms, as kernel/tail_moments.h and
// log_total.h.
// SPDX-License-Identifier: Apache-2.0

// As device/selection_kernels.h has it.
struct TailChunk {
  double sum, square_sum;
  u64 count;
  u32 smallest, unused;  // its bits, those of infinity where there is none
};

DEVICE u32 fold_min(u32 min) { return ~fold_max(~min); }

// Sums of the excesses of each chunk over the threshold, times `unit`; half a warp each. Lanes add
// in float for 32 values and then in double.
SUM_KERNEL void tail_chunks(const float* x, u64 count, float threshold, float unit, TailChunk* chunks) {
  for_sum_chunks(count, [&](const SumChunk& chunk) {
    double sum = 0, square_sum = 0;
    u32 above = 0, smallest = kInfinity;
    for (u64 block = chunk.begin; block < chunk.end; block += 512) {
      const u64 block_end = block + 512 < chunk.end ? block + 512 : chunk.end;
      float near_sum = 0, near_square_sum = 0;
      for_lane<float>(
          block, block_end, [&](u64 i) { return magnitude(x[i]); },
          [&](u64, float value) {
            const bool passes = value > threshold;
            const float excess =
                __fmul_rn(__fsub_rn(passes ? value : threshold, threshold), unit);
            above += passes;
            smallest = passes && magnitude_bits(value) < smallest ? magnitude_bits(value) : smallest;
            near_sum = __fadd_rn(near_sum, excess);
            near_square_sum = __fadd_rn(near_square_sum, __fmul_rn(excess, excess));
          });
      sum = __dadd_rn(sum, near_sum);
      square_sum = __dadd_rn(square_sum, near_square_sum);
    }
    sum = fold_lanes(sum);
    square_sum = fold_lanes(square_sum);
    above = fold_counts(above);
    smallest = fold_min(smallest);
    if (sum_lane() == 0 && chunk.exists)
      chunks[chunk.number] = {sum, square_sum, above, smallest, 0};
  });
}

struct TailTotal {
  TailChunk tail = {0, 0, 0, kInfinity, 0};
};

DEVICE void add_chunk(TailTotal& total, const TailChunk& chunk) {
  TailChunk& tail = total.tail;
  tail.sum = __dadd_rn(tail.sum, chunk.sum);
  tail.square_sum = __dadd_rn(tail.square_sum, chunk.square_sum);
  tail.count += chunk.count;
  tail.smallest = chunk.smallest < tail.smallest ? chunk.smallest : tail.smallest;
}

KERNEL void fold_tail(const TailChunk* chunks, u64 count, TailTotal* total) {
  fold_in_order(chunks, count, total);
}

// As kernel/log_total.h has it.
struct LogChunk {
  double products[kSumLanes];
  u64 exponents;
};

constexpr u32 kMantissaBits = 52;
constexpr u64 kMantissa = (1ull << kMantissaBits) - 1;
constexpr u64 kOne = 1023ull << kMantissaBits;  // the bits of 1.0

// Of (|x| + guard) * per_unit, which is normal: the product of mantissas in each lane of a chunk,
// and the sum of exponents; half a warp each.
SUM_KERNEL void log_chunks(const float* x, u64 count, double guard, double per_unit, LogChunk* chunks) {
  for_sum_chunks(count, [&](const SumChunk& chunk) {
    double product = 1;
    u32 exponents = 0;
    for_lane<float>(
        chunk.begin, chunk.end, [&](u64 i) { return magnitude(x[i]); },
        [&](u64, float value) {
          const double ratio = __dmul_rn(__dadd_rn(value, guard), per_unit);
          const u64 bits = static_cast<u64>(__double_as_longlong(ratio));
          exponents += static_cast<u32>(bits >> kMantissaBits);
          product = __dmul_rn(
              product, __longlong_as_double(static_cast<long long>((bits & kMantissa) | kOne)));
        });
    exponents = fold_counts(exponents);
    if (!chunk.exists) return;
    chunks[chunk.number].products[sum_lane()] = product;
    if (sum_lane() == 0) chunks[chunk.number].exponents = exponents;
  });
}
