// Images in memory as bytes, normalised and augmented when they are fetched.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "thinwire/torch.h"

namespace thinwire {

// One byte per colour and pixel is a quarter of the floats that a network takes.
struct Images {
  torch::Tensor pixels;  // uint8, images x channels x height x width
  torch::Tensor labels;  // int64, images
  int64_t classes = 0;
  std::vector<float> mean;       // of pixel / 255, per channel
  std::vector<float> deviation;  // likewise
};

// Part of some images as a data set: sample i is image first + i, as floats (pixel / 255 - mean) /
// deviation. With `augment`, a training fetch pads each image by four pixels of the mean colour,
// crops a window at random and flips it left to right at random [He et al., CVPR 2016, section
// 4.2], by the context's seed and epoch and the sample's id alone.
std::shared_ptr<const Dataset> make_image_set(std::shared_ptr<const Images> images, uint64_t first,
                                              uint64_t count, bool augment);

}  // namespace thinwire
