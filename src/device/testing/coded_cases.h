// Inputs of kernels' tests: values that are ordinary, difficult or extreme, and sizes around warps
// and chunks.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstddef>
#include <limits>
#include <vector>

#include "core/random.h"

namespace thinwire::device {

enum class Values { kNormal, kHeavyTail, kTies, kZeros, kTiny, kLeast, kHuge, kSpike };
inline constexpr Values kAllValues[] = {Values::kNormal, Values::kHeavyTail, Values::kTies,
                                        Values::kZeros,  Values::kTiny,      Values::kLeast,
                                        Values::kHuge,   Values::kSpike};

inline std::vector<float> make_values(Values kind, size_t count, uint64_t seed = 5) {
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) {
    const float z = random_normal({.seed = seed}, i);
    switch (kind) {
      case Values::kNormal:
        values[i] = z;
        break;
      case Values::kHeavyTail:
        values[i] = z * z * z * z * z;
        break;
      case Values::kTies:
        values[i] = i % 8 == 0 ? 127.0f : std::round(z * 3) + 0.5f;
        break;
      case Values::kZeros:
        values[i] = i % 2 ? 0.0f : -0.0f;
        break;
      case Values::kTiny:  // denormals
        values[i] = z * 1e-40f;
        break;
      case Values::kLeast:  // about the least normal number
        values[i] =
            std::copysign(std::numeric_limits<float>::min() * (i / 64 % 2 ? 127.0f : 126.9f), z);
        break;
      case Values::kHuge:
        values[i] = i % 3 == 0 ? std::copysign(std::numeric_limits<float>::max(), z) : z * 1e37f;
        break;
      case Values::kSpike:
        values[i] = i % 97 == 3 ? 1000.0f : 0.0f;
        break;
    }
  }
  return values;
}

// Around a group of 8, a warp, a block of 256 and a chunk of 8192.
inline constexpr size_t kSizes[] = {0,   1,   7,   8,    9,    31,   33,   64,   65,
                                    255, 256, 257, 1000, 4097, 8191, 8193, 20011};

}  // namespace thinwire::device
