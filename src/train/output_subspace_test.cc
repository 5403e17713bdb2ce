// Tests of principal directions and thin factors: by plain loops, on outputs in known subspaces,
// and at full rank.
// SPDX-License-Identifier: Apache-2.0
#include "train/output_subspace.h"

#include <gmock/gmock.h>
#include <torch/torch.h>

#include <cmath>

#include "core/random.h"
#include "train/data/data_test_files.h"
#include "train/thin_factors.h"

namespace thinwire {
namespace {

torch::Tensor normal(int64_t rows, int64_t columns, uint32_t stream) {
  torch::Tensor values = torch::empty({rows, columns}, torch::kFloat64);
  double* value = values.mutable_data_ptr<double>();
  const RandomKey key{.seed = 11, .use = RandomUse::kTest, .step = 0, .stream = stream};
  for (int64_t i = 0; i < rows * columns; ++i)
    value[i] = random_normal(key, static_cast<uint64_t>(i));
  return values;
}

// As a share of the largest value.
double error_of(const torch::Tensor& values, const torch::Tensor& truth) {
  return ((values - truth).abs().max() / truth.abs().max()).item<double>();
}

VectorMoments moments_of(const torch::Tensor& vectors, int64_t batch) {
  VectorMoments moments;
  for (const torch::Tensor& part : vectors.split(batch)) moments.add(part);
  return moments;
}

// A linear layer, inputs for it, and the subspace of its outputs found in both ways.
struct LinearCase {
  torch::Tensor weight, bias, inputs;

  torch::Tensor outputs() const { return inputs.mm(weight.t()) + bias; }
  OutputSubspace by_outputs() const { return subspace_of_outputs(moments_of(outputs(), 7)); }
  OutputSubspace by_inputs() const {
    return subspace_of_inputs(moments_of(inputs, 7), weight, bias);
  }
  torch::Tensor factored(const ThinFactors& factors) const {
    return inputs.mm(factors.weight().to(torch::kFloat64).t()) + factors.bias;
  }
};

// Inputs in `rank` dimensions of 6 that do not go through zero; as many outputs as said.
LinearCase case_of(int64_t outputs, int64_t rank) {
  return {.weight = normal(outputs, 6, 1),
          .bias = normal(1, outputs, 2)[0],
          .inputs = normal(40, rank, 3).mm(normal(rank, 6, 4)) + 3 * normal(1, 6, 5)};
}

TEST(VectorMoments, AreThoseOfPlainLoops) {
  const torch::Tensor vectors = normal(23, 4, 6) + 1000;
  const VectorMoments moments = moments_of(vectors, 5);
  EXPECT_EQ(moments.count(), 23);
  const auto at = vectors.accessor<double, 2>();
  double mean[4] = {};
  for (int64_t i = 0; i < 23; ++i)
    for (int64_t j = 0; j < 4; ++j) mean[j] += at[i][j] / 23;
  for (int64_t j = 0; j < 4; ++j) {
    EXPECT_NEAR(moments.mean()[j].item<double>(), mean[j], 1e-10);
    for (int64_t k = 0; k < 4; ++k) {
      double product = 0;
      for (int64_t i = 0; i < 23; ++i) product += (at[i][j] - mean[j]) * (at[i][k] - mean[k]) / 23;
      EXPECT_NEAR(moments.covariance()[j][k].item<double>(), product, 1e-10);
    }
  }
}

TEST(OutputSubspace, DirectionsAreEigenvectorsOfTheCovariance) {
  const LinearCase one = case_of(5, 6);
  const torch::Tensor covariance = moments_of(one.outputs(), 40).covariance();
  for (const OutputSubspace& found : {one.by_outputs(), one.by_inputs()}) {
    const torch::Tensor& u = found.directions;
    EXPECT_LT(error_of(found.mean, one.outputs().mean(0)), 1e-12);
    EXPECT_LT(error_of(u.t().mm(u), torch::eye(5, torch::kFloat64)), 1e-12);
    EXPECT_LT(error_of(covariance.mm(u), u * found.variances), 1e-9);
    EXPECT_TRUE((found.variances.slice(0, 1) <= found.variances.slice(0, 0, 4)).all().item<bool>());
    EXPECT_TRUE((std::get<0>(u.max(0)) >= -std::get<0>(u.min(0))).all().item<bool>())
        << "the largest value of a direction is negative";
  }
}

TEST(OutputSubspace, BothWaysFindTheSame) {
  const LinearCase one = case_of(9, 4);
  const OutputSubspace a = one.by_outputs(), b = one.by_inputs();
  EXPECT_EQ(b.directions.size(1), 6);
  EXPECT_LT(error_of(b.variances.slice(0, 0, 4), a.variances.slice(0, 0, 4)), 1e-9);
  EXPECT_LT(error_of(b.directions.slice(1, 0, 4), a.directions.slice(1, 0, 4)), 1e-6);
}

TEST(OutputSubspace, RankIsTheSmallestThatKeepsTheShare) {
  const OutputSubspace subspace{
      .mean = {},
      .directions = {},
      .variances = torch::tensor({6.0, 3.0, 0.9, 0.1, 0.0}, torch::kFloat64)};
  EXPECT_EQ(rank_for_share(subspace, 1e-9), 1);
  EXPECT_EQ(rank_for_share(subspace, 0.6), 1);
  EXPECT_EQ(rank_for_share(subspace, 0.61), 2);
  EXPECT_EQ(rank_for_share(subspace, 0.99), 3);
  EXPECT_EQ(rank_for_share(subspace, 1), 4);
  EXPECT_DOUBLE_EQ(share_of_variance(subspace, 2), 0.9);
  EXPECT_DOUBLE_EQ(share_of_variance(subspace, 5), 1);
  const OutputSubspace still{
      .mean = {}, .directions = {}, .variances = torch::zeros({3}, torch::kFloat64)};
  EXPECT_EQ(rank_for_share(still, 1), 1);
  EXPECT_EQ(share_of_variance(still, 1), 1);
}

TEST(OutputSubspace, ValuesThatAreNotFiniteAreRefused) {
  torch::Tensor vectors = normal(5, 3, 7);
  vectors[2][1] = std::nan("");
  expect_error([&] { subspace_of_outputs(moments_of(vectors, 5)); }, ErrorCode::kNonFinite,
               "not finite");
  expect_error([&] { subspace_of_inputs(moments_of(vectors, 5), normal(4, 3, 8), {}); },
               ErrorCode::kNonFinite, "not finite");
}

// The weights have full rank; the outputs do not, because the inputs do not.
TEST(ThinFactors, OutputsInAKnownSubspaceAreExact) {
  for (const int64_t outputs : {5, 9}) {
    const LinearCase one = case_of(outputs, 3);
    for (const OutputSubspace& found : {one.by_outputs(), one.by_inputs()}) {
      EXPECT_EQ(rank_for_share(found, 1), 3);
      const ThinFactors factors = factor_linear(one.weight, one.bias, found, 3);
      EXPECT_LT(error_of(one.factored(factors), one.outputs()), 1e-5);
      const ThinFactors two = factor_linear(one.weight, one.bias, found, 2);
      EXPECT_GT(error_of(one.factored(two), one.outputs()), 0.02);
      // The weights' own singular values are another matter.
      EXPECT_GT(error_of(one.factored(truncate(one.weight, one.bias, 3)), one.outputs()), 0.02);
    }
  }
}

TEST(ThinFactors, AreTheProjectionOfTheOutputs) {
  const LinearCase one = case_of(5, 6);
  const OutputSubspace found = one.by_outputs();
  const torch::Tensor u = found.directions.slice(1, 0, 2);
  const ThinFactors factors = factor_linear(one.weight, one.bias, found, 2);
  EXPECT_LT(error_of(factors.weight().to(torch::kFloat64), u.mm(u.t()).mm(one.weight)), 1e-6);
  const torch::Tensor centred = one.outputs() - found.mean;
  EXPECT_LT(error_of(one.factored(factors), centred.mm(u).mm(u.t()) + found.mean), 1e-5);
  EXPECT_EQ(factors.left.size(1), 2);
  EXPECT_EQ(factors.right.size(0), 2);
  EXPECT_EQ(factors.count(), count_factored(5, 6, 2, 5));
  EXPECT_EQ(factors.count(), 2u * (5 + 6) + 5);
}

TEST(ThinFactors, FullRankLeavesOutputsAsTheyAre) {
  const LinearCase one = case_of(5, 6);
  EXPECT_LT(error_of(one.factored(factor_linear(one.weight, one.bias, one.by_outputs(), 5)),
                     one.outputs()),
            1e-6);
  EXPECT_LT(error_of(one.factored(truncate(one.weight, one.bias, 5)), one.outputs()), 1e-6);
}

TEST(ThinFactors, WithoutABiasTheMeanIsKept) {
  LinearCase one = case_of(5, 6);
  one.bias = torch::zeros({5}, torch::kFloat64);
  const OutputSubspace found = one.by_outputs();
  const ThinFactors factors = factor_linear(one.weight, {}, found, 2);
  EXPECT_LT(error_of(one.factored(factors).mean(0), one.outputs().mean(0)), 1e-5);
}

TEST(ThinFactors, OfAnEmbeddingAreItsRowsProjected) {
  const torch::Tensor table = normal(8, 2, 9).mm(normal(2, 4, 10)) + 5;
  const torch::Tensor rows = torch::tensor({3, 3, 1, 7, 0, 2, 3});
  const OutputSubspace found = subspace_of_outputs(moments_of(table.index_select(0, rows), 2));
  EXPECT_EQ(rank_for_share(found, 1), 2);
  const ThinFactors factors = factor_embedding(table, found, 2);
  EXPECT_LT(error_of(factors.weight() + factors.bias, table), 1e-6);
  EXPECT_EQ(factors.count(), 2u * (8 + 4) + 4);
  const ThinFactors one = factor_embedding(table, found, 1);
  const torch::Tensor outputs = (one.weight() + one.bias).index_select(0, rows);
  EXPECT_LT(error_of(outputs.mean(0), table.index_select(0, rows).mean(0)), 1e-6);
}

// The smallest error of all matrices of that rank is the root of the squares of the other singular
// values.
TEST(ThinFactors, TruncationIsTheNearestOfItsRank) {
  const torch::Tensor weight = normal(5, 6, 12);
  const torch::Tensor singular = at::linalg_svdvals(weight);
  const ThinFactors factors = truncate(weight, {}, 2);
  EXPECT_FALSE(factors.bias.defined());
  EXPECT_NEAR((factors.weight().to(torch::kFloat64) - weight).norm().item<double>(),
              singular.slice(0, 2).norm().item<double>(), 1e-5);
}

}  // namespace
}  // namespace thinwire
