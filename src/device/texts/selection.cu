// Selection above a threshold, as kernel/select.h, and the k-th magnitude, as
// kernel/kth_magnitude.h.
// SPDX-License-Identifier: Apache-2.0

constexpr u64 kTile = 1024;  // values of a warp

// A value passes where its magnitude, as an integer, is above `key`. Counts those that do, and,
// unless `ties` is null, those that are equal.
KERNEL void count_tiles(const float* x, u64 count, u32 key, u64* tiles, u64* ties) {
  const u64 number_of_tiles = (count + kTile - 1) / kTile;
  for (u64 tile = thread_index() / 32; tile < number_of_tiles; tile += thread_count() / 32) {
    u32 found = 0, equal = 0;
    const u64 end = (tile + 1) * kTile < count ? (tile + 1) * kTile : count;
    u64 i = tile * kTile + threadIdx.x % 32;
    for (; i + 32 * (kAhead - 1) < end; i += 32 * kAhead) {
      float values[kAhead];
      UNROLL for (u32 k = 0; k < kAhead; ++k) values[k] = x[i + 32 * k];
      UNROLL for (u32 k = 0; k < kAhead; ++k) {
        found += magnitude_bits(values[k]) > key;
        equal += magnitude_bits(values[k]) == key;
      }
    }
    for (; i < end; i += 32) {
      found += magnitude_bits(x[i]) > key;
      equal += magnitude_bits(x[i]) == key;
    }
    found = __reduce_add_sync(kAllLanes, found);
    equal = __reduce_add_sync(kAllLanes, equal);
    if (threadIdx.x % 32 != 0) continue;
    tiles[tile] = found;
    if (ties != nullptr) ties[tile] = equal;
  }
}

// Each number becomes the sum of those before it in its segment, and totals[segment] that of all of
// them; a block of kFold threads each.
constexpr u32 kOfThread = 8;
constexpr u32 kSegment = kFold * kOfThread;
KERNEL void sum_before(u64* numbers, u64 count, u64* totals) {
  SHARED u64 of_warps[kFold / 32];
  const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  for (u64 segment = blockIdx.x; segment * kSegment < count; segment += gridDim.x) {
    const u64 begin = segment * kSegment;
    u64 sum = 0;
    const u64 first = begin + threadIdx.x * kOfThread;
    u64 own[kOfThread], mine = 0;
    UNROLL for (u32 k = 0; k < kOfThread; ++k) own[k] = first + k < count ? numbers[first + k] : 0;
    UNROLL for (u32 k = 0; k < kOfThread; ++k) mine += own[k];
    u64 up_to = mine;
    for (u32 by = 1; by < 32; by *= 2) {
      const u64 other = __shfl_up_sync(kAllLanes, up_to, by);
      if (lane >= by) up_to += other;
    }
    if (lane == 31) of_warps[warp] = up_to;
    __syncthreads();
    u64 at = up_to - mine;
    UNROLL for (u32 i = 0; i < kFold / 32; ++i) {
      at += i < warp ? of_warps[i] : 0;
      sum += of_warps[i];
    }
    UNROLL for (u32 k = 0; k < kOfThread; ++k) {
      if (first + k < count) numbers[first + k] = at;
      at += own[k];
    }
    __syncthreads();
    if (threadIdx.x == 0) totals[segment] = sum;
  }
}

// Adds to each number the sum of the segments before its own.
KERNEL void add_segments(u64* numbers, u64 count, const u64* before) {
  for (u64 i = thread_index(); i < count; i += thread_count()) numbers[i] += before[i / kSegment];
}

// Writes the first `most` positions, unless these are null, and values that pass; a rest that is
// not null has zeros there, and the values elsewhere. It may be `x`. `tiles` are those of
// count_tiles, summed. The first `most_ties` values that are equal to the key pass too; `ties` is
// null where that is 0.
KERNEL void write_selected(const float* x, u64 count, u32 key, const u64* tiles, const u64* ties,
                           u64 most_ties, u64 most, u32* positions, float* kept, float* rest) {
  const u32 lane = threadIdx.x % 32, before = (1u << lane) - 1;
  const u64 number_of_tiles = (count + kTile - 1) / kTile;
  for (u64 tile = thread_index() / 32; tile < number_of_tiles; tile += thread_count() / 32) {
    u64 above = tiles[tile];  // that lie before
    u64 equal = ties != nullptr ? ties[tile] : 0;
    const u64 end = (tile + 1) * kTile < count ? (tile + 1) * kTile : count;
    for (u64 batch = tile * kTile; batch < end; batch += 32 * kAhead) {
      float values[kAhead];
      load_ahead(x, batch, end, values);
      UNROLL for (u32 k = 0; k < kAhead; ++k) {
        const u64 i = batch + 32 * k + lane;
        const float value = values[k];
        const bool larger = i < end && magnitude_bits(value) > key;
        const bool tie = ties != nullptr && i < end && magnitude_bits(value) == key;
        const u32 larger_bits = __ballot_sync(kAllLanes, larger);
        const u32 tie_bits = __ballot_sync(kAllLanes, tie);
        const u64 ties_before = equal + static_cast<u64>(__popc(tie_bits & before));
        const u64 at = above + static_cast<u64>(__popc(larger_bits & before)) +
                       (ties_before < most_ties ? ties_before : most_ties);
        const bool sent = (larger || (tie && ties_before < most_ties)) && at < most;
        if (sent) {
          if (positions != nullptr) positions[at] = static_cast<u32>(i);
          kept[at] = value;
        }
        if (i < end && rest != nullptr && (sent || rest != x)) rest[i] = sent ? 0.0f : value;
        above += static_cast<u64>(__popc(larger_bits));
        equal += static_cast<u64>(__popc(tie_bits));
      }
    }
  }
}

KERNEL void fill_words(u32* words, u64 count, u32 value) {
  for (u64 i = thread_index(); i < count; i += thread_count()) words[i] = value;
}

KERNEL void copy_values(const float* from, u64 count, float* to) {
  for (u64 i = thread_index(); i < count; i += thread_count()) to[i] = from[i];
}

// What is known of the k-th largest magnitude: its upper bits, and how many values are larger than
// any with these.
struct Kth {
  u32 bits, unused;
  u64 above;
};

// Adds to `bins` how many values have each pattern of `width` bits above `shift`, among those whose
// bits above that are the k-th's.
constexpr u32 kMostBins = 2048;
KERNEL void count_bins(const float* x, u64 count, u32 shift, u32 width, const Kth* kth, u32* bins) {
  SHARED u32 here[kMostBins];
  for (u32 bin = threadIdx.x; bin < kMostBins; bin += blockDim.x) here[bin] = 0;
  __syncthreads();
  const u32 known = shift + width < 31 ? kth->bits : 0;
  for (u64 begin = thread_index(); begin < count; begin += kAhead * thread_count()) {
    u32 bits[kAhead] = {};
    UNROLL for (u32 k = 0; k < kAhead; ++k)
      if (begin + k * thread_count() < count) bits[k] = magnitude_bits(x[begin + k * thread_count()]);
    UNROLL for (u32 k = 0; k < kAhead; ++k) {
      if (begin + k * thread_count() >= count) continue;
      if (shift + width < 31 && bits[k] >> (shift + width) != known) continue;
      atomicAdd(here + (bits[k] >> shift & ((1u << width) - 1)), 1u);
    }
  }
  __syncthreads();
  for (u32 bin = threadIdx.x; bin < kMostBins; bin += blockDim.x)
    if (here[bin] != 0) atomicAdd(bins + bin, here[bin]);
}

// The bin, from the largest down, that holds the k-th becomes its next bits, and bins become 0; by
// one block of kFold threads. One thread finds the group of eight bins, then the bin in it.
KERNEL void find_bin(u32* bins, u32 width, u64 k, Kth* kth) {
  constexpr u32 kOwn = kMostBins / kFold;
  SHARED u32 here[kMostBins];
  SHARED u64 of_threads[kFold];
  u64 own = 0;
  UNROLL for (u32 i = 0; i < kOwn; ++i) {
    const u32 bin = threadIdx.x * kOwn + i;
    here[bin] = bins[bin];
    own += here[bin];
    bins[bin] = 0;
  }
  of_threads[threadIdx.x] = own;
  __syncthreads();
  if (threadIdx.x != 0) return;
  u64 above = kth->above;
  u32 thread = (1u << width) / kOwn - 1;
  while (thread > 0 && above + of_threads[thread] < k) above += of_threads[thread--];
  u32 bin = (thread + 1) * kOwn - 1;
  while (bin > thread * kOwn && above + here[bin] < k) above += here[bin--];
  *kth = {kth->bits << width | bin, 0, above};
}

// As kernel/value_sample.h; a thread per value of the sample.
KERNEL void sample_values(const float* x, u64 count, u32 phase, float* sample, u64 size) {
  const u64 stretch = count / size;
  for (u64 i = thread_index(); i < size; i += thread_count()) {
    const u32 scattered = phase + static_cast<u32>(i) * 2654435769u;
    sample[i] = x[i * stretch + (scattered * stretch >> 32)];
  }
}

// Adds the values at their positions, which differ.
KERNEL void add_at(const u32* positions, const float* values, u64 kept, float weight, float* out) {
  for (u64 k = thread_index(); k < kept; k += thread_count())
    out[positions[k]] = __fadd_rn(out[positions[k]], __fmul_rn(weight, values[k]));
}

// Writes values where they were kept; `rest` has them as the format left them.
KERNEL void put_at(const u32* positions, const float* values, u64 kept, float* rest) {
  for (u64 k = thread_index(); k < kept; k += thread_count()) rest[positions[k]] = values[k];
}
