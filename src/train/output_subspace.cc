// PCA by libtorch's LAPACK.
// SPDX-License-Identifier: Apache-2.0
#include "train/output_subspace.h"

#include <algorithm>
#include <utility>

#include "thinwire/status.h"

namespace thinwire {
namespace {

constexpr double kRounding = 1e-12;

void require_finite(const torch::Tensor& values) {
  if (!values.isfinite().all().item<bool>())
    throw Error(ErrorCode::kNonFinite, "the layer's outputs are not finite");
}

// LAPACK chooses signs as it likes. These are the same for a vector and its negative.
torch::Tensor with_signs(const torch::Tensor& columns) {
  const torch::Tensor largest = columns.gather(0, columns.abs().argmax(0, /*keepdim=*/true));
  return columns * torch::where(largest < 0, -1.0, 1.0);
}

// Eigenvalues from large to small.
std::pair<torch::Tensor, torch::Tensor> eigenvectors(const torch::Tensor& symmetric) {
  require_finite(symmetric);
  const auto [values, vectors] = at::linalg_eigh(symmetric);
  return {values.flip(0).clamp_min(0), vectors.flip(1)};
}

}  // namespace

void VectorMoments::add(const torch::Tensor& vectors) {
  if (vectors.size(0) == 0) return;
  const torch::Tensor values = vectors.to(torch::kFloat64);
  if (count_ == 0) {
    const int64_t length = values.size(1);
    shift_ = values.mean(0);
    sum_ = torch::zeros({length}, torch::kFloat64);
    products_ = torch::zeros({length, length}, torch::kFloat64);
  }
  const torch::Tensor shifted = values - shift_;
  sum_ += shifted.sum(0);
  products_.addmm_(shifted.t(), shifted);
  count_ += values.size(0);
}

torch::Tensor VectorMoments::mean() const { return shift_ + sum_ / count_; }

torch::Tensor VectorMoments::covariance() const {
  const torch::Tensor mean = sum_ / count_;
  return products_ / count_ - torch::outer(mean, mean);
}

OutputSubspace subspace_of_outputs(const VectorMoments& outputs) {
  const auto [values, vectors] = eigenvectors(outputs.covariance());
  return {.mean = outputs.mean(), .directions = with_signs(vectors), .variances = values};
}

OutputSubspace subspace_of_inputs(const VectorMoments& inputs, const torch::Tensor& weight,
                                  const torch::Tensor& bias) {
  const torch::Tensor w = weight.to(torch::kFloat64);
  const auto [values, vectors] = eigenvectors(inputs.covariance());
  const torch::Tensor spread = w.mm(vectors * values.sqrt());
  require_finite(spread);
  const auto [left, singular, right] = at::linalg_svd(spread, /*full_matrices=*/false);
  torch::Tensor mean = w.mv(inputs.mean());
  if (bias.defined()) mean += bias;
  return {.mean = mean, .directions = with_signs(left), .variances = singular.square()};
}

int64_t determined_directions(const OutputSubspace& subspace) {
  if (subspace.variances.size(0) == 0) return 0;
  const double largest = subspace.variances[0].item<double>();
  return (subspace.variances > kRounding * largest).sum().item<int64_t>();
}

double share_of_variance(const OutputSubspace& subspace, int64_t rank) {
  const double all = subspace.variances.sum().item<double>();
  if (all <= 0) return 1;
  return std::min(1.0, subspace.variances.slice(0, 0, rank).sum().item<double>() / all);
}

int64_t rank_for_share(const OutputSubspace& subspace, double share) {
  const int64_t directions = subspace.variances.size(0);
  const torch::Tensor sums = subspace.variances.cumsum(0);
  const double wanted = (share - kRounding) * sums[directions - 1].item<double>();
  const int64_t below = (sums < wanted).sum().item<int64_t>();
  return std::clamp<int64_t>(below + 1, 1, directions);
}

}  // namespace thinwire
