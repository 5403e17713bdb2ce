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

// Rank 0 is largest in the first tensor and in the second, rank 1 in all that there is. What decides
// bucket by bucket, or section by section, leaves out rank 0.
TEST_P(ExchangeCombine, AllBucketsAndSectionsDecideTogether) {
  const std::vector<TensorSpec> model{{"x", {10}, TensorKind::kLinear},
                                      {"y", {10}, TensorKind::kLinear},
                                      {"z", {10}, TensorKind::kLinear}};
  const TensorRule by_gather{.pattern = "y", .codec = "fp32", .method = "gather"};
  const TensorRule in_halves{.pattern = "z", .codec = "fp16", .method = "scatter-reduce"};
  for (const std::string method : {"scatter-reduce", "gather"})
    for (const bool weighted : {false, true})
      for (const std::vector<TensorRule>& rules :
           {std::vector<TensorRule>{}, {by_gather}, {by_gather, in_halves}})
        on_all([&](Group& group) {
          Side side(group, model,
                    {.codec = "fp32",
                     .method = method,
                     .combine = "cge",
                     .weighted = weighted,
                     .rules = rules,
                     .bucket_bytes = 40});
          for (int step = 0; step < 2; ++step) {
            const float of[3] = {group.rank() == 0 ? 3.0f : 2.0f, group.rank() == 0 ? 3.0f : 2.0f,
                                 group.rank() == 0   ? 0.0f
                                 : group.rank() == 1 ? 4.0f
                                                     : 1.0f};
            side.values = {Values(10, of[0]), Values(10, of[1]), Values(10, of[2])};
            for (size_t i = 0; i < 3; ++i) side.start(i);
            EXPECT_FALSE(side.exchange().finish().skipped);
            const float rest = static_cast<float>(group.size() - 1);
            for (const size_t i : {0, 1})
              for (const float value : side.values[i])
                EXPECT_NEAR(value, 2 + 1 / rest, 1e-6) << method;
            for (const float value : side.values[2])
              EXPECT_NEAR(value, (rest - 1) / rest, 1e-3) << method;
          }
        });
}

TEST_P(ExchangeCombine, HostileRanksAreLeftOut) {
  const int n = GetParam(), most = (n - 1) / 2, few = (n - 3) / 2;
  const std::pair<int, std::string> rules[] = {
      {most, "cge:f=" + std::to_string(most)},
      {few, "krum:f=" + std::to_string(few)},
      {few, "krum:f=" + std::to_string(few) + ",m=" + std::to_string(n - few)}};
  for (const auto& [bad, rule] : rules)
    for (const std::string text : {"fp32", "int8", "bf16", "topk:density=1"})
      for (const Results results : {Results::kFull, Results::kShard})
        on_all([&, bad = bad, rule = rule](Group& group) {
          const ExchangeOptions options{.codec = text,
                                        .feedback = "none",
                                        .combine = rule,
                                        .results = results,
                                        .chunk_values = 60};
          if (!settle(options, 0)) return;
          Side side(group, {kTensor}, options);
          side.values = gradients({kTensor}, group.rank(), 0);
          if (group.rank() >= group.size() - bad)
            for (float& value : side.values[0]) value = 1e30f;
          side.start(0);
          const StepReport report = side.exchange().finish();
          EXPECT_FALSE(report.skipped);
          for (int rank = n - bad; rank < n; ++rank)
            EXPECT_EQ(std::count(report.unchosen.begin(), report.unchosen.end(), rank), 1) << rule;
          const int chosen =
              rule.starts_with("cge") || rule.ends_with(std::to_string(n - bad)) ? n - bad : 1;
          EXPECT_EQ(report.unchosen.size(), static_cast<size_t>(n - chosen)) << rule;
          if (results == Results::kFull) {
            for (const float value : side.values[0]) EXPECT_LE(std::abs(value), 0.051f) << text;
            return;
          }
          for (const OwnedRange& range : side.exchange().owned(group.rank()))
            for (size_t i = range.begin; i < range.begin + range.count; ++i)
              EXPECT_LE(std::abs(side.values[0][i]), 0.051f) << text;
        });
}

TEST_P(ExchangeCombine, RulesNeedEnoughRanksInEveryStep) {
  const int f = (GetParam() - 1) / 2;
  const auto text = [](const std::string& named, int left_out) {
    return "combine = " + named + " needs 2 f + 1 = " + std::to_string(2 * left_out + 1) +
           " ranks at least, and ";
  };
  for (const std::string method : {"scatter-reduce", "gather"})
    for (const std::string name : {"cge:f=", "trimmed_mean:f="})
      on_all([&](Group& group) {
        const std::string rule = name + std::to_string(f), more = name + std::to_string(f + 1);
        const int n = group.size();
        try {
          Side(group, small_model(), {.combine = more});
          ADD_FAILURE() << more << " at " << n;
        } catch (const Error& error) {
          EXPECT_EQ(error.code(), ErrorCode::kBadOption);
          EXPECT_EQ(std::string(error.what()),
                    "exchange: " + text(more, f + 1) + "the group has " + std::to_string(n));
        }
        Side side(group, small_model(),
                  {.codec = "fp32",
                   .feedback = "residual",
                   .method = method,
                   .combine = rule,
                   .weighted = true,
                   .chunk_values = 4,
                   .max_skipped = 1});
        EXPECT_FALSE(side.step(0).skipped);
        const StateArrays before = side.store().save();
        // As many as the rule can spare, then one more.
        const int spare = n - (2 * f + 1);
        for (const int out : {spare, spare + 1}) {
          if (group.rank() < out) side.exchange().abstain(Abstention::kSitsOut);
          const StepReport report = side.step(1);
          EXPECT_EQ(report.participants, static_cast<uint64_t>(n - out));
          EXPECT_EQ(report.skipped, out > spare) << method;
          if (!report.skipped) continue;
          EXPECT_EQ(report.fault.code, ErrorCode::kOk);
          EXPECT_EQ(describe(report.fault), text(rule, f) + std::to_string(n - out) + " took part");
          for (const Values& values : side.values)
            for (const float value : values) EXPECT_EQ(value, 0);
        }
        EXPECT_TRUE(same_state(side.store().save(), before));  // fp32 leaves nothing
        EXPECT_FALSE(side.step(3).skipped);
      });
}

TEST_P(ExchangeCombine, RulesOverVectorsTakeBfloat16) {
  on_all([](Group& group) {
    Store store;
    const auto exchange = make_exchange(group, store, {{"w", {50}, TensorKind::kLinear}},
                                        {.codec = "fp32", .combine = "cge:f=1"});
    const bool large = group.rank() == 1;
    std::vector<uint16_t> values(50, large ? 0x7e00 : 0x3f80);  // 4e37, 1
    exchange->start(0, {.data = values.data(), .count = 50, .dtype = DType::kBFloat16});
    EXPECT_FALSE(exchange->finish().skipped);
    EXPECT_EQ(values, std::vector<uint16_t>(50, 0x3f80));
  });
}

// Ranks go on from the last result, or the last median, together; the last rank goes elsewhere. A step that
// is skipped is none, a change of codec or method is no reason to begin again, and a run that was saved goes on.
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

// By a schedule, and by a call.
TEST_P(ExchangeCombine, RulesOverVectorsOutlastChangesOfTheCodec) {
  on_all([](Group& group) {
    ExchangeOptions options{.codec = "fp32 | 2steps: int8",
                            .feedback = "none",
                            .combine = "cge:f=1",
                            .bucket_bytes = 900};
    Side side(group, kTensors, options);
    for (uint64_t step = 0; step < 6; ++step) {
      if (step == 4) {
        options.codec = "bf16";
        options.method = "auto";
        options.rules = {{.pattern = "b", .codec = "topk:density=1", .method = "gather"}};
        side.exchange().change(options);
      }
      side.values = gradients(kTensors, group.rank(), step);
      for (size_t i = kTensors.size(); i-- > 0;) {
        if (group.rank() == 1) side.values[i].assign(side.values[i].size(), 1e20f);
        side.start(i);
      }
      EXPECT_FALSE(side.exchange().finish().skipped) << step;
      for (const Values& values : side.values)
        for (const float value : values) EXPECT_LE(std::abs(value), 0.051f) << step;
    }
  });
}

// Some steps: the same bits everywhere.
TEST_P(ExchangeCombine, EveryCodecGivesAllRanksTheSameBits) {
  std::vector<ExchangeOptions> all;
  for (ExchangeOptions options : codecs_and_methods(4))
    for (const char* rule :
         {"median", "trimmed_mean", "mean_around_median", "cge:f=1", "krum:f=0", "bulyan:f=0",
          "mda", "geometric_median", "bucketing:s=2 then median", "nnm then cge", "caf", "smea",
          "centred_clipping:tau=0.1", "nnm then centred_clipping:tau=0.1", "licm"}) {
      options.combine = rule;
      if (settle(options, 0)) all.push_back(options);
    }
  for (ExchangeOptions options : all) {
    options.bucket_bytes = 900;
    options.chunk_values = 16;
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
}

// A group of a hierarchy counts as one rank.
TEST_P(ExchangeCombine, GroupsInsideAreCountedAsOneEach) {
  const int n = GetParam();
  if (n % 3 != 0) return;
  on_all([&](Group& group) {
    const std::string rule = "trimmed_mean:f=" + std::to_string(n / 6 + 1);
    try {
      Side(group, small_model(), {.combine = rule, .inside = 3});
      ADD_FAILURE() << rule << " at " << n;
    } catch (const Error& error) {
      EXPECT_EQ(std::string(error.what()),
                "exchange: combine = " + rule +
                    " needs 2 f + 1 = " + std::to_string(2 * (n / 6 + 1) + 1) +
                    " ranks at least, and the groups inside count as " + std::to_string(n / 3));
    }
    Side side(group, {kTensor}, {.codec = "fp32", .combine = "trimmed_mean:f=0", .inside = 3});
    EXPECT_FALSE(side.step(0).skipped);
  });
}

TEST(ExchangeCombineNames, MistakesNameTheChoices) {
  const auto why = [](const ExchangeOptions& options) {
    return std::string(check_exchange(options).message());
  };
  const auto has = [&](const ExchangeOptions& options, const std::string& text) {
    EXPECT_NE(why(options).find(text), std::string::npos) << why(options);
  };
  has({.combine = "medain"},
      "exchange: unknown combine 'medain'; known: mean, median, trimmed_mean, mean_around_median, "
      "cge, "
      "krum, multi_krum, bulyan, mda, geometric_median, centred_clipping, caf, smea, licm; did you "
      "mean 'median'?");
  has({.combine = "cge:g=1"}, "exchange: combine 'cge'");
  has({.combine = "cge:f=-1"}, "combine 'cge'");
  has({.combine = "krum:m=0"}, "combine 'krum'");
  has({.combine = "mda:f=17"}, "combine 'mda'");
  has({.combine = "geometric_median:nu=0"}, "combine 'geometric_median'");
  has({.combine = "mean:f=1"}, "exchange: combine 'mean'");
  has({.combine = "smea:f=9"}, "combine 'smea'");
  has({.combine = "centred_clipping:tau=0"}, "combine 'centred_clipping'");
  has({.method = "scatter-reduce", .combine = "licm"},
      "method scatter-reduce gives each rank its part of all contributions, and this rule keeps "
      "what "
      "follows from all; use gather");
  has({.combine = "centred_clipping", .results = Results::kShard},
      "centred_clipping and licm follow the whole result from step to step, of which ranks have "
      "shards; choose full results, or another rule");
  has({.combine = "cge:f=1", .inside = 2},
      "inside = 2: combine = cge:f=1 chooses among whole vectors");
  has({.feedback = "ef21", .combine = "cge:f=1"},
      "memory ef21 follows the mean over all ranks' estimates, and combine = cge:f=1");
  EXPECT_EQ(fixed_text({.combine = "cge"}), fixed_text({.combine = "cge:f=1"}));
  EXPECT_NE(fixed_text({.combine = "cge:f=2"}), fixed_text({.combine = "cge:f=1"}));
}

}  // namespace
}  // namespace thinwire::testing
