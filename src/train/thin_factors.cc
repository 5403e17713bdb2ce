// Everything is computed in double and rounded once.
// SPDX-License-Identifier: Apache-2.0
#include "train/thin_factors.h"

#include "core/check.h"

namespace thinwire {
namespace {

torch::Tensor first_directions(const OutputSubspace& outputs, int64_t rank) {
  THINWIRE_CHECK(rank >= 1 && rank <= outputs.directions.size(1), "factors: no such rank");
  return outputs.directions.slice(1, 0, rank);
}

ThinFactors rounded(const torch::Tensor& left, const torch::Tensor& right,
                    const torch::Tensor& bias) {
  const auto to_float = [](const torch::Tensor& values) {
    return values.defined() ? values.detach().to(torch::kFloat32).contiguous() : values;
  };
  return {.left = to_float(left), .right = to_float(right), .bias = to_float(bias)};
}

}  // namespace

torch::Tensor ThinFactors::weight() const {
  return left.to(torch::kFloat64).mm(right.to(torch::kFloat64)).to(torch::kFloat32);
}

uint64_t ThinFactors::count() const {
  return static_cast<uint64_t>(left.numel() + right.numel() + (bias.defined() ? bias.numel() : 0));
}

uint64_t count_factored(int64_t rows, int64_t columns, int64_t rank, int64_t bias) {
  return static_cast<uint64_t>(rank * (rows + columns) + bias);
}

ThinFactors factor_linear(const torch::Tensor& weight, const torch::Tensor& bias,
                          const OutputSubspace& outputs, int64_t rank) {
  const torch::Tensor u = first_directions(outputs, rank);
  const torch::Tensor& m = outputs.mean;
  const torch::Tensor less = bias.defined() ? bias.to(torch::kFloat64) - m : -m;
  return rounded(u, u.t().mm(weight.to(torch::kFloat64)), m + u.mv(u.t().mv(less)));
}

ThinFactors factor_embedding(const torch::Tensor& table, const OutputSubspace& outputs,
                             int64_t rank) {
  const torch::Tensor u = first_directions(outputs, rank);
  const torch::Tensor& m = outputs.mean;
  return rounded(table.to(torch::kFloat64).mm(u), u.t(), m - u.mv(u.t().mv(m)));
}

ThinFactors truncate(const torch::Tensor& weight, const torch::Tensor& bias, int64_t rank) {
  const auto [left, singular, right] =
      at::linalg_svd(weight.to(torch::kFloat64), /*full_matrices=*/false);
  THINWIRE_CHECK(rank >= 1 && rank <= singular.size(0), "factors: no such rank");
  const torch::Tensor scaled = left.slice(1, 0, rank) * singular.slice(0, 0, rank);
  return rounded(scaled, right.slice(0, 0, rank), bias);
}

}  // namespace thinwire
