// Rules other than the mean: every rank has what a loop over all contributions gives, to the bit.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "exchange/testing/exchange_testing.h"
#include "multirank/ranks.h"

namespace thinwire::testing {
namespace {

class ExchangeCombine : public ::testing::TestWithParam<int> {
 protected:
  void on_all(const std::function<void(Group&)>& body) { on_ranks(GetParam(), body); }
};

std::vector<int> three_and_more() {
  std::vector<int> counts = rank_counts();
  std::erase_if(counts, [](int count) { return count < 3; });
  return counts;
}
INSTANTIATE_TEST_SUITE_P(Ranks, ExchangeCombine, ::testing::ValuesIn(three_and_more()),
                         ::testing::PrintToStringParamName());
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(ExchangeCombine);

// By sorting, as the definition has it.
float median(std::vector<float> column) {
  std::sort(column.begin(), column.end());
  const size_t n = column.size();
  return n % 2 == 1 ? column[n / 2] : 0.5f * column[n / 2 - 1] + 0.5f * column[n / 2];
}

// Of one tensor, in the first step: no memory owes anything yet.
Values expected(const TensorSpec& tensor, const Codec& codec, int ranks) {
  const StreamSpec spec = single_tensor(tensor);
  std::vector<Values> rows;
  for (int rank = 0; rank < ranks; ++rank) {
    const Values given = gradient(tensor, rank, 0);
    std::vector<std::byte> bytes(codec.max_encoded_size(spec));
    const Call call{.salt = static_cast<uint64_t>(rank), .ranks = static_cast<uint64_t>(ranks)};
    bytes.resize(codec.make_encoder(spec)->encode({.values = given}, call, bytes, {}).size);
    rows.emplace_back(given.size(), -0.0f);
    codec.make_decoder(spec)->decode_add(bytes, 1.0f, rows.back()).or_throw();
  }
  Values result(tensor.count());
  for (size_t i = 0; i < result.size(); ++i) {
    std::vector<float> column;
    for (const Values& row : rows) column.push_back(row[i]);
    result[i] = median(column);
  }
  return result;
}

bool same_values(const Values& a, const Values& b) {  // zeros of both signs are one value
  return std::equal(a.begin(), a.end(), b.begin(), b.end());
}

const TensorSpec kTensor{"linear.weight", {40, 25}, TensorKind::kLinear};

TEST_P(ExchangeCombine, MedianIsThatOfTheDecodedContributions) {
  for (const std::string method : {"scatter-reduce", "gather"})
    for (const std::string text : {"fp32", "topk:density=0.2", "sidco:density=0.1", "sign"}) {
      if (method == "scatter-reduce" && text != "fp32") continue;  // its owner encodes once more
      on_all([&](Group& group) {
        Side side(group, {kTensor},
                  {.codec = text, .method = method, .combine = "median", .chunk_values = 200});
        EXPECT_FALSE(side.step(0).skipped);
        const auto codec = make_codec(text).value().codec;
        EXPECT_TRUE(same_values(side.values[0], expected(kTensor, *codec, group.size())))
            << text << " by " << method;
      });
    }
}

TEST_P(ExchangeCombine, AMinorityOfRanksCannotMoveTheMedianFar) {
  const int bad = (GetParam() - 1) / 2;
  for (const std::string text : {"fp32", "int8", "topk:density=1"})
    on_all([&](Group& group) {
      Side side(group, {kTensor}, {.codec = text, .feedback = "none", .combine = "median"});
      side.values = gradients({kTensor}, group.rank(), 0);
      if (group.rank() < bad)
        for (float& value : side.values[0]) value = 1e30f;
      side.start(0);
      EXPECT_FALSE(side.exchange().finish().skipped);
      for (const float value : side.values[0]) EXPECT_LE(std::abs(value), 0.051f) << text;
    });
}

// Two runs of some steps: the same bits everywhere, memories included.
TEST_P(ExchangeCombine, EveryCodecGivesAllRanksTheSameBits) {
  for (ExchangeOptions options : codecs_and_methods(4)) {
    options.combine = "median";
    if (!settle(options, 0)) continue;
    on_all([&](Group& group) {
      Side side(group, small_model(), options);
      for (uint64_t step = 0; step < 3; ++step) EXPECT_FALSE(side.step(step).skipped);
      uint64_t sum = 0;
      for (const Values& values : side.values)
        sum = checksum(std::as_bytes(std::span(&sum, 1)), std::as_bytes(std::span(values)));
      EXPECT_EQ(group.max(sum), sum);
      EXPECT_EQ(group.max(~sum), ~sum);
    });
  }
}

TEST_P(ExchangeCombine, MethodsThatOnlyAddSaySo) {
  for (const std::string method : {"dense", "sparse-reduce", "low-rank"}) {
    const std::string codec = method == "dense"      ? "fp32"
                              : method == "low-rank" ? "powersgd"
                                                     : "topk";
    const auto terms = settle({.codec = codec, .method = method, .combine = "median"}, 0);
    ASSERT_FALSE(terms);
    EXPECT_NE(terms.status().message().find("by mean alone; use "), std::string::npos);
  }
  const auto unknown = settle({.combine = "medain"}, 0);
  ASSERT_FALSE(unknown);
  EXPECT_NE(unknown.status().message().find("did you mean 'median'"), std::string::npos);
}

}  // namespace
}  // namespace thinwire::testing
