// Pictures as addresses that hold them, so that a page loads nothing.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "thinwire/influence.h"

namespace thinwire::cli {

// "data:image/bmp;base64,...": 24 bits per pixel, uncompressed. REQUIRES: one or three channels.
std::string picture_uri(const SamplePicture& picture);

}  // namespace thinwire::cli
