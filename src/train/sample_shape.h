// SampleShape: the shape of a data set's samples, as far as a model must know it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

namespace thinwire {

struct SampleShape {
  // One sample, without the batch dimension: {channels, height, width} of an image, {frames, bands}
  // of an utterance, {characters} of a text, {columns} of a table.
  std::vector<int64_t> input;
  int64_t classes = 0;  // of a prediction; of a text, the size of its alphabet
  // Of a table: its last columns hold numbers of categories, 0 .. categories - 1.
  std::vector<int64_t> categories = {};

  int64_t count() const noexcept {
    int64_t product = 1;
    for (const int64_t extent : input) product *= extent;
    return product;
  }
};

}  // namespace thinwire
