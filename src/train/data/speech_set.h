// Spoken digits as log-mel features, computed once when they are read.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "thinwire/torch.h"

namespace thinwire {

struct Utterances {
  torch::Tensor features;  // float, utterances x frames x bands
  torch::Tensor labels;    // int64: the digit
};

struct UtterancePair {
  Utterances train;
  Utterances test;
};

inline constexpr int64_t kUtteranceFrames = 64;  // 0.65 s; 19 in 20 recordings are shorter
inline constexpr int64_t kUtteranceBands = 40;

// Reads a folder or archive of recordings. The dataset's own split: index 0-4 of each speaker and
// digit is test data. In order of index first, so that any run of samples is balanced over digits
// and speakers. Throws Error kIo or kCorrupt.
UtterancePair read_spoken_digits(const std::string& path);

// Utterances first .. first + count - 1 as a data set.
std::shared_ptr<const Dataset> make_speech_set(std::shared_ptr<const Utterances> utterances,
                                               uint64_t first, uint64_t count);

}  // namespace thinwire
