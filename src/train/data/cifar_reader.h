// The binary version of CIFAR-10.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>

#include "train/data/image_set.h"

namespace thinwire {

// The images of all these batches, packed or not, in order. Throws Error kIo or kCorrupt.
Images read_cifar(std::span<const std::string> files);

}  // namespace thinwire
