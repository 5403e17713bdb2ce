// Fills arrays with random bits by random_bits-inl.h.
// SPDX-License-Identifier: Apache-2.0
#include "kernel/random_bits.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernel/random_bits.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// After foreach_target.h.
#include "hwy/highway.h"
#include "kernel/random_bits-inl.h"

HWY_BEFORE_NAMESPACE();
namespace thinwire::kernel::HWY_NAMESPACE {
namespace {

void RandomHalves(const RandomKey& key, uint64_t position, uint16_t* halves, size_t count) {
  Draws draws(key);
  for (size_t begin = 0; begin < count; begin += Draws::kMost) {
    const size_t n = std::min(Draws::kMost, count - begin);
    draws.Fill(position + begin, n);
    std::copy(draws.at(0), draws.at(n), halves + begin);
  }
}

}  // namespace
}  // namespace thinwire::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace thinwire::kernel {
namespace {
HWY_EXPORT(RandomHalves);
}  // namespace

void random_halves(const RandomKey& key, uint64_t position, std::span<uint16_t> halves) noexcept {
  HWY_DYNAMIC_DISPATCH(RandomHalves)(key, position, halves.data(), halves.size());
}

}  // namespace thinwire::kernel
#endif  // HWY_ONCE
