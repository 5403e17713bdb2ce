// The first layer of networks on tables: numbers stay, categories become vectors.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "thinwire/torch.h"
#include "train/sample_shape.h"

namespace thinwire {

// A layer from samples x columns to samples x count_values. A category becomes a learned vector of
// `length` values, or with length 0 a one-hot vector; then the layer has no weights. All columns
// have their vectors in one table, "embedding.weight", the rows of one column after those of the
// one before. REQUIRES: the shape has categories.
Layer table_columns(const SampleShape& shape, int64_t length);

// Of a sample behind that layer.
int64_t count_values(const SampleShape& shape, int64_t length);

}  // namespace thinwire
