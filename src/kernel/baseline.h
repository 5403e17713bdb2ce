// Plain loops at the speed of the memory, with which benchmarks compare everything else.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

namespace thinwire::kernel {

// Sum of |values[i]|: one read of memory ("scan").
float baseline_scan(std::span<const float> values) noexcept;

// target[i] += values[i]: two reads, one write ("stream"). REQUIRES: equal lengths.
void baseline_stream(std::span<const float> values, std::span<float> target) noexcept;

}  // namespace thinwire::kernel
