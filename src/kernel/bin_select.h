// AdaComp's selection by width of code; callers use select_bins.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

#include "kernel/bin_codes.h"

namespace thinwire::kernel {

// What select_bins promises, for bins of up to kMaxByteBin and of up to kMaxBin values.
BinSelection select_short_bins(std::span<const float> g, std::span<const float> fresh, float factor,
                               size_t bin, std::span<std::byte> codes) noexcept;
BinSelection select_long_bins(std::span<const float> g, std::span<const float> fresh, float factor,
                              size_t bin, std::span<std::byte> codes) noexcept;

}  // namespace thinwire::kernel
