// Positions as bits, as kernel/position_code.h: a warp per block, each way.
// SPDX-License-Identifier: Apache-2.0

constexpr u32 kCodeBlock = 512;  // positions that share a parameter
constexpr u32 kOfLane = kCodeBlock / 32;

// Of the block that begins at this position.
DEVICE u32 block_size(u64 kept, u64 begin) {
  return kept - begin < kCodeBlock ? static_cast<u32>(kept - begin) : kCodeBlock;
}

// The sum of what the lanes up to this one give.
DEVICE u32 sum_to(u32 own) {
  const u32 lane = threadIdx.x % 32;
  u32 sum = own;
  for (u32 by = 1; by < 32; by *= 2) {
    const u32 other = __shfl_up_sync(kAllLanes, sum, by);
    if (lane >= by) sum += other;
  }
  return sum;
}

// The distance of position k to the one before, minus 1.
DEVICE u32 gap_of(const u32* positions, u64 k) {
  return k == 0 ? positions[0] : positions[k] - positions[k - 1] - 1;
}

// The sum of what gap >> parameter takes in a block, in all lanes.
DEVICE u32 high_sum(const u32* positions, u64 begin, u32 n, u32 parameter) {
  u32 sum = 0;
  for (u32 i = threadIdx.x % 32; i < n; i += 32) sum += gap_of(positions, begin + i) >> parameter;
  return __reduce_add_sync(kAllLanes, sum);
}

// The parameter of each block of positions, the bytes of its low bits and the number of its high
// ones; a warp each.
KERNEL void choose_parameters(const u32* positions, u64 kept, u8* parameters, u64* low_bytes,
                              u64* high_bits) {
  const u64 blocks = (kept + kCodeBlock - 1) / kCodeBlock;
  for (u64 block = thread_index() / 32; block < blocks; block += thread_count() / 32) {
    const u64 begin = block * kCodeBlock;
    const u32 n = block_size(kept, begin);
    u32 zeros = high_sum(positions, begin, n, 0);
    u32 parameter = zeros < n ? 0 : 31 - static_cast<u32>(__clz(static_cast<i32>(zeros / n)));
    zeros = high_sum(positions, begin, n, parameter);
    while (parameter > 0) {
      const u32 with_less = high_sum(positions, begin, n, parameter - 1);
      if (with_less - zeros >= n) break;
      zeros = with_less;
      --parameter;
    }
    if (threadIdx.x % 32 != 0) continue;
    parameters[block] = static_cast<u8>(parameter);
    low_bytes[block] = code_bytes(n, parameter);
    high_bits[block] = zeros + u64{n};
  }
}

// Low bits of each block; `low_bytes` are summed. A lane makes whole bytes.
KERNEL void write_low_bits(const u32* positions, u64 kept, const u8* parameters,
                           const u64* low_bytes, u8* out) {
  const u64 blocks = (kept + kCodeBlock - 1) / kCodeBlock;
  for (u64 block = thread_index() / 32; block < blocks; block += thread_count() / 32) {
    const u64 begin = block * kCodeBlock;
    const u32 n = block_size(kept, begin);
    const u32 width = parameters[block];
    const u32 bytes = static_cast<u32>(code_bytes(n, width));
    for (u32 byte = threadIdx.x % 32; byte < bytes; byte += 32) {
      u32 bits = 0, filled = 0;
      while (filled < 8 && (8 * byte + filled) / width < n) {
        const u32 bit = 8 * byte + filled, skip = bit % width;
        const u32 low = gap_of(positions, begin + bit / width) & ((1u << width) - 1);
        bits |= low >> skip << filled;
        filled += width - skip;
      }
      out[low_bytes[block] + byte] = static_cast<u8>(bits);
    }
  }
}

// Sets the ones among the high bits, in words of zeros; `high_bits` are summed. Lanes take
// neighbouring gaps, and the order in which words are joined does not matter.
KERNEL void write_high_bits(const u32* positions, u64 kept, const u8* parameters,
                            const u64* high_bits, u32* words) {
  const u32 lane = threadIdx.x % 32;
  const u64 blocks = (kept + kCodeBlock - 1) / kCodeBlock;
  for (u64 block = thread_index() / 32; block < blocks; block += thread_count() / 32) {
    const u64 begin = block * kCodeBlock;
    const u32 n = block_size(kept, begin);
    u32 own = 0;
    for (u32 i = lane * kOfLane; i < (lane + 1) * kOfLane && i < n; ++i)
      own += (gap_of(positions, begin + i) >> parameters[block]) + 1;
    u64 bit = high_bits[block] + sum_to(own) - own;
    for (u32 i = lane * kOfLane; i < (lane + 1) * kOfLane && i < n; ++i) {
      bit += gap_of(positions, begin + i) >> parameters[block];
      atomicOr(words + bit / 32, 1u << bit % 32);
      ++bit;
    }
  }
}

// The words' bytes as far as there are bits, to any address.
KERNEL void copy_bits(const u32* words, u64 bits, u8* out) {
  for (u64 byte = thread_index(); byte < code_bytes(bits, 1); byte += thread_count())
    out[byte] = static_cast<u8>(words[byte / 4] >> byte % 4 * 8);
}

// As kernel/position_code.h has it.
struct PositionPlace {
  u64 low, high;
  u32 base, parameter;
};

DEVICE u32 lowest_bit(u32 bits) {
  return 31 - static_cast<u32>(__clz(static_cast<i32>(bits & (0 - bits))));
}

// Into `zeros` how many zeros lie before each of the first n ones from bit `begin` on. Lanes take
// neighbouring words.
DEVICE void count_zeros(const u8* code, u64 size, u64 begin, u32 n, u32* zeros) {
  u32 found = 0;  // ones
  for (u64 stretch = begin / 8; found < n && stretch < size; stretch += 4 * 32) {
    const u64 byte = stretch + 4 * (threadIdx.x % 32);
    const u64 left = byte < size ? size - byte : 0;
    u32 word = static_cast<u32>(get_codes(code + byte, left < 4 ? static_cast<u32>(left) : 4));
    if (byte == begin / 8) word &= ~0u << begin % 8;
    const u32 ones = static_cast<u32>(__popc(word));
    const u32 up_to = sum_to(ones);
    for (u32 i = found + up_to - ones; word != 0 && i < n; word &= word - 1, ++i)
      zeros[i] = static_cast<u32>(8 * byte + lowest_bit(word) - begin) - i;
    found += __shfl_sync(kAllLanes, up_to, 31);
  }
}

// The positions of a code that PositionReader takes, with the places that it finds. Numbers are
// those of PositionReader, cut to the 32 bits that positions have.
KERNEL void unpack_positions(const u8* code, u64 size, u64 kept, const PositionPlace* places,
                             u32* positions) {
  const u64 blocks = (kept + kCodeBlock - 1) / kCodeBlock;
  for (u64 block = thread_index() / 32; block < blocks; block += thread_count() / 32) {
    const PositionPlace place = places[block];
    const u32 n = block_size(kept, block * kCodeBlock);
    u32* const here = positions + block * kCodeBlock;
    count_zeros(code, size, place.high, n, here);
    __syncwarp();
    u32 sum = place.base;  // and low bits so far
    for (u32 begin = 0; begin < n; begin += 32) {
      const u32 i = begin + threadIdx.x % 32;
      const u32 bit = i * place.parameter, skip = bit % 8;
      const u32 bytes = i < n ? (skip + place.parameter + 7) / 8 : 0;
      const u32 low = static_cast<u32>(get_codes(code + place.low + bit / 8, bytes) >> skip) &
                      ((1u << place.parameter) - 1);
      const u32 up_to = sum_to(low);
      if (i < n) here[i] = sum + up_to + (here[i] << place.parameter) + i;
      sum += __shfl_sync(kAllLanes, up_to, 31);
    }
  }
}
