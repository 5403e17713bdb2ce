// The affine subspace in which most of a layer's outputs lie: their mean and principal directions.
//
// With the outputs y of many samples, m their mean and U the eigenvectors of their covariance, the
// nearest affine subspace of k dimensions has y ~ U_k U_k^T (y - m) + m [PCA; unified low-rank
// compression, KDD 2024, arXiv 2405.18146].
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/torch.h>

#include <cstdint>

namespace thinwire {

// Sums over vectors from which their mean and covariance follow. All in double.
class VectorMoments {
 public:
  // vectors x values.
  void add(const torch::Tensor& vectors);

  int64_t count() const noexcept { return count_; }
  // REQUIRES: count() > 0.
  torch::Tensor mean() const;
  torch::Tensor covariance() const;  // divided by count()

 private:
  int64_t count_ = 0;
  // Of the vectors less the first batch's mean, so that a mean far from zero costs no digits.
  torch::Tensor shift_, sum_, products_;
};

struct OutputSubspace {
  torch::Tensor mean;  // outputs
  // outputs x directions, orthonormal, by descending variance; the largest value of each is
  // positive
  torch::Tensor directions;
  torch::Tensor variances;  // directions; none is negative
};

// By the outputs themselves: eigenvectors of their covariance (LAPACK's syevd). Throws
// Error(kNonFinite).
OutputSubspace subspace_of_outputs(const VectorMoments& outputs);

// By the inputs x of a layer with more outputs than inputs, whose outputs are y = W x + b: with the
// covariance Q D Q^T of x, the left singular vectors of W Q D^(1/2), which are the same directions
// for less work. `bias` may be undefined. Throws Error(kNonFinite).
OutputSubspace subspace_of_inputs(const VectorMoments& inputs, const torch::Tensor& weight,
                                  const torch::Tensor& bias);

// The directions in which outputs vary, but for rounding of 1e-12 of the largest variance. Those
// beyond are any that are orthogonal: n vectors determine n - 1 of them at most.
int64_t determined_directions(const OutputSubspace& subspace);

// Of the variance of outputs, the part in the first `rank` directions, in [0, 1]; 1 where outputs
// do not vary.
double share_of_variance(const OutputSubspace& subspace, int64_t rank);

// The smallest rank, at least 1, with `share` of the variance, but for rounding of 1e-12.
int64_t rank_for_share(const OutputSubspace& subspace, double share);

}  // namespace thinwire
