// Packs codes of k bits into bytes, over whole arrays, by code_bits-inl.h.
// SPDX-License-Identifier: Apache-2.0
#include "kernel/code_bits.h"

#include <cassert>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernel/code_bits.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// After foreach_target.h.
#include "hwy/highway.h"
#include "kernel/code_bits-inl.h"

HWY_BEFORE_NAMESPACE();
namespace thinwire::kernel::HWY_NAMESPACE {
namespace {

template <class Packer>
void Pack(const Packer& packer, const uint8_t* codes, size_t count, std::byte* out, size_t size) {
  const std::byte* end = out + size;
  size_t i = 0;
  for (; i + kCodeGroup <= count && out + kPackReach <= end; i += kCodeGroup) {
    packer.Store(hn::LoadU(D8(), codes + i), out);
    out += packer.size(kCodeGroup);
  }
  for (; i < count; i += kCodeGroup) {
    const size_t n = std::min(kCodeGroup, count - i);
    HWY_ALIGN uint8_t last[kCodeGroup] = {};
    std::memcpy(last, codes + i, n);
    packer.StoreFirst(hn::Load(D8(), last), n, out);
    out += packer.size(n);
  }
}

template <class Packer>
void Unpack(const Packer& packer, const std::byte* in, size_t size, uint8_t* codes, size_t count) {
  const std::byte* end = in + size;
  size_t i = 0;
  for (; i + kCodeGroup <= count && in + kPackReach <= end; i += kCodeGroup) {
    hn::StoreU(packer.Load(in), D8(), codes + i);
    in += packer.size(kCodeGroup);
  }
  for (; i < count; i += kCodeGroup) {
    const size_t n = std::min(kCodeGroup, count - i);
    HWY_ALIGN uint8_t last[kCodeGroup];
    hn::Store(packer.LoadFirst(in, n), D8(), last);
    std::memcpy(codes + i, last, n);
    in += packer.size(n);
  }
}

void PackCodes(const uint8_t* codes, size_t count, size_t bits, std::byte* out, size_t size) {
  WithPacker(bits, [=](const auto& packer) HWY_ATTR { Pack(packer, codes, count, out, size); });
}

void UnpackCodes(const std::byte* in, size_t size, size_t bits, uint8_t* codes, size_t count) {
  WithPacker(bits, [=](const auto& packer) HWY_ATTR { Unpack(packer, in, size, codes, count); });
}

}  // namespace
}  // namespace thinwire::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace thinwire::kernel {
namespace {
HWY_EXPORT(PackCodes);
HWY_EXPORT(UnpackCodes);
}  // namespace

void pack_codes(std::span<const uint8_t> codes, size_t bits, std::span<std::byte> out) noexcept {
  assert(1 <= bits && bits <= 8 && out.size() == code_bytes(codes.size(), bits));
  HWY_DYNAMIC_DISPATCH(PackCodes)(codes.data(), codes.size(), bits, out.data(), out.size());
}

void unpack_codes(std::span<const std::byte> bytes, size_t bits,
                  std::span<uint8_t> codes) noexcept {
  assert(1 <= bits && bits <= 8 && bytes.size() == code_bytes(codes.size(), bits));
  HWY_DYNAMIC_DISPATCH(UnpackCodes)
  (bytes.data(), bytes.size(), bits, codes.data(), codes.size());
}

}  // namespace thinwire::kernel
#endif  // HWY_ONCE
