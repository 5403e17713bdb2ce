// Spoken digits as log-mel features, computed once when they are read.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "train/data/row_set.h"

namespace thinwire {

// Features are utterances x frames x bands, labels the digits.
struct UtterancePair {
  Rows train;
  Rows test;
};

inline constexpr int64_t kUtteranceFrames = 64;  // 0.65 s; 19 in 20 recordings are shorter
inline constexpr int64_t kUtteranceBands = 40;

// Reads a folder or archive of recordings. The dataset's own split: index 0-4 of each speaker and
// digit is test data. In order of index first, so that any run of samples is balanced over digits
// and speakers. Throws Error kIo or kCorrupt.
UtterancePair read_spoken_digits(const std::string& path);

}  // namespace thinwire
