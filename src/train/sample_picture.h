// Samples as images of bytes, for people.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "thinwire/influence.h"
#include "thinwire/torch.h"
#include "train/data/data_sets.h"

namespace thinwire {

// Images get back the bytes that they were read from. Features of an utterance are grey, time from
// left to right and low tones at the bottom, from the least to the greatest value. Empty for what
// is neither.
SamplePicture picture_of(const torch::Tensor& input, const PixelScale& pixels);

}  // namespace thinwire
