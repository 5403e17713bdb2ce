// Reading codes is one chain of small steps per code, so it is plain C++.
// SPDX-License-Identifier: Apache-2.0
#include "kernel/bin_codes.h"

#include <bit>
#include <cassert>
#include <cstring>

namespace thinwire::kernel {
namespace {

template <typename Code>
std::optional<size_t> add_codes(std::span<const std::byte> codes, size_t bin, float magnitude,
                                std::span<float> out) noexcept {
  using Layout = BinCode<Code>;
  constexpr int kSignShift = 32 - (std::numeric_limits<Code>::digits - 1);
  const auto bits = std::bit_cast<uint32_t>(magnitude);
  const size_t count = out.size();
  const std::byte* at = codes.data();
  const std::byte* const end = at + codes.size() / sizeof(Code) * sizeof(Code);
  size_t begin = 0;  // of the bin
  size_t next = 0;   // the least offset that may follow
  while (begin < count) {
    if (at == end) return std::nullopt;
    Code code;
    std::memcpy(&code, at, sizeof code);
    at += sizeof code;
    const size_t offset = code & Layout::kOffset;
    if (offset >= bin || begin + offset >= count) {
      if (code != Layout::kEmpty || next != 0) return std::nullopt;
      begin += bin;
      continue;
    }
    if (offset < next) return std::nullopt;
    const uint32_t sign = uint32_t{static_cast<Code>(code & Layout::kNegative)} << kSignShift;
    out[begin + offset] += std::bit_cast<float>(bits ^ sign);
    const bool last = (code & Layout::kLast) != 0;
    begin += last ? bin : 0;
    next = last ? 0 : offset + 1;
  }
  return static_cast<size_t>(at - codes.data());
}

}  // namespace

std::optional<size_t> add_bins(std::span<const std::byte> codes, size_t bin, float magnitude,
                               std::span<float> out) noexcept {
  assert(bin >= 1 && bin <= kMaxBin);
  return bin_code_size(bin) == 1 ? add_codes<uint8_t>(codes, bin, magnitude, out)
                                 : add_codes<uint16_t>(codes, bin, magnitude, out);
}

}  // namespace thinwire::kernel
