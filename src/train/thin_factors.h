// Two thin factors in the place of a layer's weights.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/torch.h>

#include <cstdint>

#include "train/output_subspace.h"

namespace thinwire {

// float32. left x right stands for the weights, and `bias` for the bias: of a linear layer y = left
// (right x) + bias; of an embedding the row of left, times right, plus bias.
struct ThinFactors {
  torch::Tensor left;   // rows of the weights x rank
  torch::Tensor right;  // rank x columns of the weights
  torch::Tensor bias;   // undefined: there is none

  torch::Tensor weight() const;  // left x right, in double, rounded to float32
  uint64_t count() const;        // values of all three
};

// How many values the factors of weights rows x columns have, with a bias of `bias` values.
uint64_t count_factored(int64_t rows, int64_t columns, int64_t rank, int64_t bias);

// The layer's outputs projected on the subspace's first `rank` directions: left = U_k, right =
// U_k^T W, bias = m + U_k U_k^T (b - m). `bias` may be undefined: it is then 0. REQUIRES: 1 <= rank
// <= the subspace's directions.
ThinFactors factor_linear(const torch::Tensor& weight, const torch::Tensor& bias,
                          const OutputSubspace& outputs, int64_t rank);

// The same of an embedding, whose outputs are its rows: left = E U_k, right = U_k^T, bias = m - U_k
// U_k^T m.
ThinFactors factor_embedding(const torch::Tensor& table, const OutputSubspace& outputs,
                             int64_t rank);

// The best approximation of the weights themselves, whatever the outputs are: the `rank` largest
// singular values [Eckart and Young, 1936]. The bias stays.
ThinFactors truncate(const torch::Tensor& weight, const torch::Tensor& bias, int64_t rank);

}  // namespace thinwire
