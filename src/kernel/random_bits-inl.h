// Philox4x32-10 in vectors, and what codes draw from it.
// SPDX-License-Identifier: Apache-2.0

// Per-target include guard.
#if defined(THINWIRE_KERNEL_RANDOM_BITS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef THINWIRE_KERNEL_RANDOM_BITS_INL_H_
#undef THINWIRE_KERNEL_RANDOM_BITS_INL_H_
#else
#define THINWIRE_KERNEL_RANDOM_BITS_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "core/random.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace thinwire::kernel::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// A 64-bit lane holds one block: its four words in the lower halves of four vectors. Multiplication
// takes lower halves only, so what gathers in the upper ones need not be cleared: eight operations
// a round for 64 or 32 halves of words.
class Philox {
  using D32 = hn::CappedTag<uint32_t, 8>;
  using D64 = hn::Repartition<uint64_t, D32>;
  using V64 = hn::Vec<D64>;
  static constexpr size_t kLanes = hn::MaxLanes(D64());
  static constexpr size_t kRounds = 10;
  static constexpr size_t kHalvesOfBlock = 8;
  static constexpr size_t kWays =
      2;  // chains of rounds at a time: one alone waits for its products

 public:
  using D16 = hn::Repartition<uint16_t, D32>;
  static constexpr size_t kHalves = kWays * kLanes * kHalvesOfBlock;  // of one call of Fill

  explicit Philox(const RandomKey& key) {
    const PhiloxInput input = philox_input(key);
    const D64 d;
    step_[0] = hn::Set(d, input.counter[2]);
    step_[1] = hn::Set(d, input.counter[3]);
    for (uint32_t round = 0; round < kRounds; ++round) {
      round_keys_[round][0] = hn::Set(d, uint32_t{input.key[0] + round * 0x9E3779B9u});
      round_keys_[round][1] = hn::Set(d, uint32_t{input.key[1] + round * 0xBB67AE85u});
    }
    // Two neighbouring lanes are interleaved at the end, which brings blocks into order if the even
    // lanes hold the first half of them.
    HWY_ALIGN uint64_t order[kLanes];
    for (size_t lane = 0; lane < kLanes; ++lane) order[lane] = lane % 2 * (kLanes / 2) + lane / 2;
    order_ = hn::Load(d, order);
  }

  // The halves at positions 8 block to 8 block + kHalves - 1.
  HWY_INLINE void Fill(uint64_t block, uint16_t* halves) const {
    const D64 d;
    const D32 d32;
    const auto multiplier0 = hn::Set(d32, 0xD2511F53u), multiplier1 = hn::Set(d32, 0xCD9E8D57u);
    V64 c0[kWays], c1[kWays], c2[kWays], c3[kWays];
    for (size_t w = 0; w < kWays; ++w) {
      c0[w] = hn::Add(hn::Set(d, block + w * kLanes), order_);
      c1[w] = hn::ShiftRight<32>(c0[w]);
      c2[w] = step_[0];
      c3[w] = step_[1];
    }
    for (size_t round = 0; round < kRounds; ++round)
      for (size_t w = 0; w < kWays; ++w) {
        const V64 product0 = hn::MulEven(hn::BitCast(d32, c0[w]), multiplier0);
        const V64 product1 = hn::MulEven(hn::BitCast(d32, c2[w]), multiplier1);
        c0[w] = hn::Xor(hn::Xor(hn::ShiftRight<32>(product1), c1[w]), round_keys_[round][0]);
        c2[w] = hn::Xor(hn::Xor(hn::ShiftRight<32>(product0), c3[w]), round_keys_[round][1]);
        c1[w] = product1;
        c3[w] = product0;
      }
    for (size_t w = 0; w < kWays; ++w) {
      const V64 words01 = Pair(c0[w], c1[w]), words23 = Pair(c2[w], c3[w]);
      hn::StoreU(hn::BitCast(D16(), hn::InterleaveLower(d, words01, words23)), D16(), halves);
      halves += hn::MaxLanes(D16());
      hn::StoreU(hn::BitCast(D16(), hn::InterleaveUpper(d, words01, words23)), D16(), halves);
      halves += hn::MaxLanes(D16());
    }
  }

 private:
  static HWY_INLINE V64 Pair(V64 low, V64 high) {
    const D32 d32;
    return hn::BitCast(
        D64(), hn::OddEven(hn::BitCast(d32, hn::ShiftLeft<32>(high)), hn::BitCast(d32, low)));
  }

  V64 step_[2], order_;
  V64 round_keys_[kRounds][2];
};

// The draws of consecutive positions, a stretch at a time, in the first cache.
class Draws {
 public:
  static constexpr size_t kMost = 1024;

  explicit Draws(const RandomKey& key) : philox_(key) {}

  // Afterwards at(i) points to the draws of position + i and those that follow, up to
  // position + count. REQUIRES: count <= kMost.
  HWY_INLINE void Fill(uint64_t position, size_t count) {
    const uint64_t block = position / 8;
    skip_ = position % 8;
    for (size_t i = 0; i < skip_ + count; i += Philox::kHalves)
      philox_.Fill(block + i / 8, halves_ + i);
  }

  HWY_INLINE const uint16_t* at(size_t i) const { return halves_ + skip_ + i; }

 private:
  Philox philox_;
  size_t skip_ = 0;
  // Up to 31 more than were asked for may be read.
  HWY_ALIGN uint16_t halves_[kMost + 8 + Philox::kHalves + 32] = {};
};

}  // namespace thinwire::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
