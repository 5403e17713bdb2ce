// Images in memory as bytes, normalised and augmented when they are fetched.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
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

struct ImageView {
  bool augment = false;  // in training fetches
  int64_t crop = 0;      // side of the window that is seen of each image; 0: all of it
};

// Part of some images as a data set: sample i is image first + i, as floats (pixel / 255 - mean) /
// deviation. With `augment`, a training fetch flips each image left to right at random, and takes a
// window of it at random: of `crop` pixels a side where that is given [LSGD, NeurIPS 2019], else of
// the image's own size, out of the image padded by four pixels of the mean colour [He et al., CVPR
// 2016, section 4.2]; by the context's seed and epoch and the sample's id alone. Without, the
// window is the image's middle. REQUIRES: no side of the images is smaller than `crop`.
std::shared_ptr<const Dataset> make_image_set(std::shared_ptr<const Images> images, uint64_t first,
                                              uint64_t count, const ImageView& view);

}  // namespace thinwire
