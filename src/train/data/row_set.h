// Samples in memory as the rows of a tensor, with a label each: features of speech, lines of
// tables.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>

#include "thinwire/torch.h"

namespace thinwire {

struct Rows {
  torch::Tensor features;  // float, first dimension: samples
  torch::Tensor labels;    // int64: the class of each
};

// Rows first .. first + count - 1 as a data set.
std::shared_ptr<const Dataset> make_row_set(std::shared_ptr<const Rows> rows, uint64_t first,
                                            uint64_t count);

}  // namespace thinwire
