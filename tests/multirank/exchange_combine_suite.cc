// Rules other than the mean: every rank has what a loop over all contributions gives, to the bit.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <utility>

#include "exchange/testing/exchange_testing.h"
#include "exchange/testing/rule_oracles.h"
#include "multirank/ranks.h"

namespace thinwire::testing {
namespace {

class ExchangeCombine : public ::testing::TestWithParam<int> {
 protected:
  void on_all(const std::function<void(Group&)>& body) { on_ranks(GetParam(), body); }
};

INSTANTIATE_TEST_SUITE_P(Ranks, ExchangeCombine, ::testing::ValuesIn(three_ranks_and_more()),
                         ::testing::PrintToStringParamName());
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(ExchangeCombine);

// By sorting, as the definition has it.
float median(std::vector<float> column) {
  std::sort(column.begin(), column.end());
  const size_t n = column.size();
  return n % 2 == 1 ? column[n / 2] : 0.5f * column[n / 2 - 1] + 0.5f * column[n / 2];
}

// What the others have of a tensor of each rank, in the first step: no memory owes anything yet.
std::vector<Values> decoded(const TensorSpec& tensor, const Codec& codec, int ranks) {
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
  return rows;
}

Values expected(const TensorSpec& tensor, const Codec& codec, int ranks) {
  const std::vector<Values> rows = decoded(tensor, codec, ranks);
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

// Several buckets, and tensors of which some ranks own nothing.
const std::vector<TensorSpec> kTensors{{"a", {3}, TensorKind::kLinear},
                                       {"b", {40, 25}, TensorKind::kLinear},
                                       {"c", {17, 9}, TensorKind::kLinear}};

// By rank, of all tensors.
using Choice = std::function<std::vector<float>(const std::vector<std::vector<Values>>& rows)>;

double square_distance(const Values& a, const Values& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double difference = a[i] - b[i];
    sum += difference * difference;
  }
  return sum;
}

// The ranks of the `count` least scores count alike.
std::vector<float> best(const std::vector<double>& scores, size_t count) {
  std::vector<float> weights;
  for (size_t rank = 0; rank < scores.size(); ++rank) {
    size_t before = 0;
    for (size_t other = 0; other < scores.size(); ++other)
      before += scores[other] < scores[rank] || (scores[other] == scores[rank] && other < rank);
    weights.push_back(before < count ? 1.0f / static_cast<float>(count) : 0.0f);
  }
  return weights;
}

std::vector<float> cge(const std::vector<std::vector<Values>>& rows, size_t f) {
  std::vector<double> norms(rows[0].size());
  for (const std::vector<Values>& tensor : rows)
    for (size_t rank = 0; rank < norms.size(); ++rank)
      norms[rank] += square_distance(tensor[rank], Values(tensor[rank].size()));
  return best(norms, norms.size() - f);
}

std::vector<float> krum(const std::vector<std::vector<Values>>& rows, size_t f, size_t m) {
  const size_t ranks = rows[0].size();
  std::vector<double> scores;
  for (size_t rank = 0; rank < ranks; ++rank) {
    std::vector<double> distances;
    for (size_t other = 0; other < ranks; ++other) {
      if (other == rank) continue;
      distances.push_back(0);
      for (const std::vector<Values>& tensor : rows)
        distances.back() += square_distance(tensor[rank], tensor[other]);
    }
    std::sort(distances.begin(), distances.end());
    scores.push_back(0);
    for (size_t i = 0; i < ranks - f - 2; ++i) scores.back() += distances[i];
  }
  return best(scores, m);
}

Tensors chosen(const Choice& choice, const Codec& codec, int ranks) {
  std::vector<std::vector<Values>> rows;
  for (const TensorSpec& tensor : kTensors) rows.push_back(decoded(tensor, codec, ranks));
  const std::vector<float> weights = choice(rows);
  Tensors results;
  for (const std::vector<Values>& tensor : rows) {
    results.emplace_back(tensor[0].size());
    for (size_t rank = 0; rank < tensor.size(); ++rank)
      for (size_t i = 0; weights[rank] > 0 && i < results.back().size(); ++i)
        results.back()[i] += weights[rank] * tensor[rank][i];
  }
  return results;
}

struct RuleOverVectors {
  std::string text;
  Choice choice;
};

std::vector<RuleOverVectors> rules_over_vectors(int ranks) {
  const size_t most = static_cast<size_t>(ranks - 1) / 2;
  std::vector<RuleOverVectors> rules;
  for (const size_t f : {size_t{0}, size_t{1}, most})
    rules.push_back({"cge:f=" + std::to_string(f), [f](const auto& rows) { return cge(rows, f); }});
  const auto n = static_cast<size_t>(ranks);
  for (size_t f = 0; 2 * f + 3 <= n; ++f)
    for (const size_t m : {size_t{1}, size_t{2}, n - f})
      rules.push_back({"krum:f=" + std::to_string(f) + ",m=" + std::to_string(m),
                       [f, m](const auto& rows) { return krum(rows, f, m); }});
  return rules;
}

// Several buckets, and several chunks of a tensor.
ExchangeOptions in_parts(const std::string& rule, const std::string& codec,
                         const std::string& method) {
  return {.codec = codec,
          .method = method,
          .combine = rule,
          .grouping = Grouping::kTensor,
          .bucket_bytes = 700,
          .chunk_values = 20};
}

TEST_P(ExchangeCombine, RulesOverVectorsChooseAmongTheDecodedContributions) {
  for (const RuleOverVectors& rule : rules_over_vectors(GetParam()))
    for (const std::string method : {"scatter-reduce", "gather"})
      for (const std::string text : {"fp32", "topk:density=0.2", "sidco:density=0.1", "sign"}) {
        if (method == "scatter-reduce" && text != "fp32") continue;  // its owner encodes once more
        on_all([&](Group& group) {
          Side side(group, kTensors, in_parts(rule.text, text, method));
          EXPECT_FALSE(side.step(0).skipped);
          const auto codec = make_codec(text).value().codec;
          const Tensors expected = chosen(rule.choice, *codec, group.size());
          for (size_t i = 0; i < expected.size(); ++i)
            EXPECT_TRUE(same_values(side.values[i], expected[i]))
                << rule.text << ", " << text << " by " << method << ", tensor " << i;
        });
      }
}

// As a loop over whole vectors in double has it.
TEST_P(ExchangeCombine, EveryRuleGivesWhatItsPlainLoopGives) {
  for (const RuleOracle& rule : rule_oracles(static_cast<size_t>(GetParam())))
    for (const std::string method : {"scatter-reduce", "gather"})
      for (const std::string text : {"fp32", "topk:density=0.2", "sign"}) {
        if (method == "scatter-reduce" && text != "fp32") continue;  // its owner encodes once more
        if (method == "scatter-reduce" && rule.text == "licm") continue;  // refused
        const auto codec = make_codec(text).value().codec;
        Rows rows(static_cast<size_t>(GetParam()));
        for (const TensorSpec& tensor : kTensors) {
          const std::vector<Values> of_tensor = decoded(tensor, *codec, GetParam());
          for (size_t rank = 0; rank < rows.size(); ++rank)
            rows[rank].insert(rows[rank].end(), of_tensor[rank].begin(), of_tensor[rank].end());
        }
        const Row expected = rule.of(rows);
        on_all([&](Group& group) {
          Side side(group, kTensors, in_parts(rule.text, text, method));
          EXPECT_FALSE(side.step(0).skipped);
          size_t place = 0;
          for (const Values& values : side.values)
            for (const float value : values)
              ASSERT_NEAR(value, expected[place++], 1e-6)
                  << rule.text << ", " << text << " by " << method;
        });
      }
}

// Ranks go on from the last result, or the last median, together; the last rank goes elsewhere. A
// step that is skipped is none, a change of codec or method is no reason to begin again, and a run
// that was saved goes on.
TEST_P(ExchangeCombine, RulesThatKeepSomethingFollowTheirLoops) {
  const auto n = static_cast<size_t>(GetParam());
  const auto value = [n](size_t rank, uint64_t step, size_t i) {
    const float way = static_cast<float>(step) * (rank + 1 == n ? -1.0f : 1.0f);
    return way + 0.01f * static_cast<float>(rank) + 0.001f * static_cast<float>(i % 7);
  };
  const auto next = [](const std::string& rule, const Rows& rows, const Row& kept) {
    if (rule.starts_with("licm")) return licm_oracle(rows, 3, kept);
    const Row from = kept.empty() ? Row(rows[0].size()) : kept;
    return centred_clipping_oracle(rule.starts_with("nnm") ? nnm_oracle(rows, 1) : rows, 20, 2,
                                   from);
  };
  struct Variant {
    std::string rule, method, method_later;
    bool weighted = false;
  };
  const std::string clipping = "centred_clipping:tau=20,iterations=2";
  for (const Variant& variant :
       std::vector<Variant>{{clipping, "scatter-reduce", "gather"},
                            {"nnm:f=1 then " + clipping, "scatter-reduce", "scatter-reduce"},
                            {clipping, "gather", "scatter-reduce"},
                            {clipping, "gather", "gather", true},
                            {"nnm:f=1 then " + clipping, "gather", "gather"},
                            {"licm:gamma=3", "gather", "gather"},
                            {"licm:gamma=3", "gather", "gather", true}})
    on_all([&](Group& group) {
      ExchangeOptions options = in_parts(variant.rule, "fp32", variant.method);
      options.weighted = variant.weighted;
      const std::string what = variant.rule + " by " + variant.method;
      auto side = std::make_unique<Side>(group, kTensors, options);
      const auto rank = static_cast<size_t>(group.rank());
      Row kept;
      for (uint64_t step = 0; step < 7; ++step) {
        if (step == 4) {
          options.method = variant.method_later;
          if (options.method == "gather") options.codec = "topk:density=1";  // loses nothing
          side->exchange().change(options);
        }
        if (step == 5) {
          const auto store = std::make_shared<Store>();
          store->load({side->store().save()}, 0, 1).or_throw();
          options.first_step = step;
          side.reset();
          side = std::make_unique<Side>(group, kTensors, options, store);
        }
        // Elsewhere the rank would be left out of the step.
        const bool spoilt = step == 2 && (variant.method == "scatter-reduce" || variant.weighted);
        Rows rows(n);
        side->values.clear();
        for (const TensorSpec& tensor : kTensors) {
          side->values.emplace_back();
          for (size_t i = 0; i < tensor.count(); ++i) {
            for (size_t other = 0; other < n; ++other) rows[other].push_back(value(other, step, i));
            side->values.back().push_back(spoilt && rank == 0 ? NAN : value(rank, step, i));
          }
        }
        for (size_t i = kTensors.size(); i-- > 0;) side->start(i);
        EXPECT_EQ(side->exchange().finish().skipped, spoilt) << what << ", step " << step;
        if (spoilt) continue;
        const Row expected = next(variant.rule, rows, kept);
        kept = variant.rule.starts_with("licm") ? median_oracle(rows) : expected;
        size_t place = 0;
        for (const Values& values : side->values)
          for (const float got : values)
            ASSERT_NEAR(got, expected[place++], 5e-6) << what << ", step " << step;
      }
    });
}

// No codec comes after the choice there, so that lossy ones can be compared. A rank's own
// contribution is what the others would have of it.
TEST_P(ExchangeCombine, ShardsAreTheChoiceToTheBit) {
  for (const RuleOverVectors& rule : rules_over_vectors(GetParam()))
    for (const std::string text : {"fp32", "bf16", "int8"})
      on_all([&](Group& group) {
        Side side(group, kTensors,
                  {.codec = text,
                   .combine = rule.text,
                   .results = Results::kShard,
                   .bucket_bytes = 700,
                   .chunk_values = 20});
        EXPECT_FALSE(side.step(0).skipped);
        const Tensors expected = chosen(rule.choice, *make_codec(text).value().codec, group.size());
        for (const OwnedRange& range : side.exchange().owned(group.rank()))
          for (size_t i = range.begin; i < range.begin + range.count; ++i)
            ASSERT_EQ(side.values[range.tensor][i], expected[range.tensor][i])
                << rule.text << ", " << text << ", tensor " << range.tensor;
      });
}

}  // namespace
}  // namespace thinwire::testing
