// Image data sets from their files, which come in the order of the catalogue.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "train/data/image_set.h"

namespace thinwire {

struct ImagePair {
  Images train;
  Images test;
};

// Each throws Error, kIo or kCorrupt, naming file and fault.
ImagePair read_fashion_mnist(const std::vector<std::string>& files);
ImagePair read_mnist(const std::vector<std::string>& files);
ImagePair read_cifar10(const std::vector<std::string>& files);

// Images and labels from two IDX files, checked against each other.
Images read_idx_images(const std::string& images, const std::string& labels, float mean,
                       float deviation);

}  // namespace thinwire
