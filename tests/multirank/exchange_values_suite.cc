// What an exchange computes: the mean that a loop over ranks gives, to the bit, on every rank.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "exchange/testing/exchange_oracle.h"
#include "exchange/testing/exchange_testing.h"
#include "multirank/ranks.h"

namespace thinwire::testing {
namespace {

constexpr uint64_t kSteps = 4;

class ExchangeValues : public ::testing::TestWithParam<int> {
 protected:
  void on_all(const std::function<void(Group&)>& body) { on_ranks(GetParam(), body); }

  // Each rank computes what all should have, and compares.
  void expect_oracle(const ExchangeOptions& options) {
    on_all([&](Group& group) {
      Side side(group, small_model(), options);
      const Terms terms = terms_of(options);
      Oracle oracle(group.size(), small_model(), side.exchange().streams(), options.codec,
                    terms.feedback, terms.method->name, 0, options.grouping);
      for (uint64_t step = 0; step < kSteps; ++step) {
        const StepReport report = side.step(step);
        EXPECT_FALSE(report.skipped);
        EXPECT_EQ(report.step, step);
        EXPECT_TRUE(same_bits(side.values,
                              oracle.step(step, all_gradients(small_model(), group.size(), step))))
            << options.codec << " " << options.method << ", rank " << group.rank() << ", step "
            << step;
      }
    });
  }
};
INSTANTIATE_TEST_SUITE_P(Ranks, ExchangeValues, ::testing::ValuesIn(rank_counts()),
                         ::testing::PrintToStringParamName());

// The values of all ranks' arrays `name`, added up.
std::vector<double> sum_of_states(Group& group, const Store& store, const std::string& name,
                                  size_t count) {
  Values mine(count);
  EXPECT_TRUE(copy_state(store.save(), name, std::span<float>(mine)).is_ok());
  Values all(count * static_cast<size_t>(group.size()));
  group.all_gather(std::as_bytes(std::span(mine)), std::as_writable_bytes(std::span(all)));
  std::vector<double> sum(count);
  for (size_t i = 0; i < all.size(); ++i) sum[i % count] += all[i];
  return sum;
}

// Adds n x what each owner keeps of its shard of `stream`, as far as owners remember.
void add_what_owners_owe(Group& group, const Store& store, const std::string& stream,
                         std::vector<double>& kept) {
  const auto owed = owed_by_owner(store.save(), stream, kept.size());
  if (!owed) return;
  const Values& all = *owed;
  std::vector<Values> of_ranks(static_cast<size_t>(group.size()), Values(kept.size()));
  for (int rank = 0; rank < group.size(); ++rank) {
    if (rank == group.rank()) of_ranks[static_cast<size_t>(rank)] = all;
    group.broadcast(std::as_writable_bytes(std::span(of_ranks[static_cast<size_t>(rank)])), rank);
  }
  for (const Values& values : of_ranks)
    for (size_t i = 0; i < kept.size(); ++i) kept[i] += group.size() * double{values[i]};
}

TEST_P(ExchangeValues, DenseIsTheSumInRankOrderTimesOneOverN) {
  on_all([](Group& group) {
    const auto model = small_model();
    Side side(group, model, {.codec = "fp32"});
    for (uint64_t step = 0; step < kSteps; ++step) {
      side.step(step);
      const auto given = all_gradients(model, group.size(), step);
      Tensors mean = given[0];
      for (size_t t = 0; t < model.size(); ++t)
        for (size_t i = 0; i < mean[t].size(); ++i) {
          for (size_t rank = 1; rank < given.size(); ++rank) mean[t][i] += given[rank][t][i];
          mean[t][i] *= 1.0f / static_cast<float>(group.size());
        }
      EXPECT_TRUE(same_bits(side.values, mean));
    }
  });
}

TEST_P(ExchangeValues, EveryCodecThroughEveryMethodMatchesTheOracle) {
  for (const ExchangeOptions& options : codecs_and_methods(GetParam())) expect_oracle(options);
}

TEST_P(ExchangeValues, EveryFeedbackAndGroupingMatchesTheOracle) {
  for (ExchangeOptions options : codecs_and_methods(GetParam())) {
    std::vector<Grouping> groupings = {Grouping::kModel, Grouping::kTensor};
    if (options.grouping) groupings = {*options.grouping};
    for (const Grouping grouping : groupings)
      for (const std::string feedback : {"none", "residual"}) {
        options.feedback = feedback;
        options.grouping = grouping;
        options.bucket_bytes = 300;
        options.chunk_values = 60;
        expect_oracle(options);
      }
  }
}

TEST_P(ExchangeValues, EveryMemoryMatchesTheOracle) {
  for (const FeedbackEntry* entry : list_feedbacks())
    for (const size_t bucket_bytes : {300, 100000}) {
      const std::string memory(entry->name);
      for (const std::string codec : {"topk:density=0.1", "fp16", "test-nearest"})
        expect_oracle({.codec = codec,
                       .feedback = memory,
                       .bucket_bytes = bucket_bytes,
                       .chunk_values = bucket_bytes / 4});
    }
}

// A rank's own clipping depends on how many there are.
TEST_P(ExchangeValues, MemoriesKnowTheNumberOfRanks) {
  const std::string memory = "dgc:momentum=0.5,clip=0.01";
  expect_oracle({.codec = "topk:density=0.1", .feedback = memory});
}

// H, the same bits on every rank, is the mean of the h_i that ranks keep to themselves.
TEST_P(ExchangeValues, EstimatesOfRanksHaveTheMeanThatAllFollow) {
  on_all([](Group& group) {
    const auto model = small_model();
    Side side(group, model, {.codec = "topk:density=0.2", .feedback = "ef21"});
    for (uint64_t step = 0; step < 3 * kSteps; ++step) side.step(step);
    for (size_t t = 0; t < model.size(); ++t) {
      if (model[t].kind == TensorKind::kBias || model[t].kind == TensorKind::kNorm) continue;
      const std::string key = model[t].name + "/feedback/";
      const size_t count = model[t].count();
      Values followed(count);
      ASSERT_TRUE(copy_state(side.store().save(), key + "mean_estimate", std::span(followed)));
      EXPECT_TRUE(same_bits(side.values[t], followed)) << model[t].name;
      const auto estimates = sum_of_states(group, side.store(), key + "estimate", count);
      for (size_t i = 0; i < count; ++i)
        EXPECT_NEAR(followed[i], estimates[i] / group.size(), 3e-8) << model[t].name;
    }
  });
}

TEST_P(ExchangeValues, LibraryIsCloseToDense) {
  on_all([](Group& group) {
    Side dense(group, small_model(), {.codec = "fp32"});
    Side library(group, small_model(), {.codec = "fp32", .method = "library"});
    for (uint64_t step = 0; step < kSteps; ++step) {
      dense.step(step);
      library.step(step);
      for (size_t t = 0; t < dense.values.size(); ++t)
        for (size_t i = 0; i < dense.values[t].size(); ++i)
          EXPECT_NEAR(library.values[t][i], dense.values[t][i], 1e-7f);
    }
  });
}

// What was sent so far plus what is still remembered is what was given: nothing is lost on the way.
TEST_P(ExchangeValues, MeansAndResidualsAddUpToTheGradients) {
  for (ExchangeOptions options : codecs_and_methods(GetParam())) {
    const CodecInfo info = terms_of(options).codec->info();
    const bool owners_forget = info.unbiased && !info.lossless;
    // What the mean loses is lost. Next to votes, which are 1, the gradients' last bits are.
    if (options.method == "dense" || (options.method == "scatter-reduce" && owners_forget) ||
        info.vote)
      continue;
    options.feedback = "residual";
    if (options.grouping) continue;  // of the same codecs as one stream
    options.grouping = Grouping::kModel;
    on_all([&](Group& group) {
      const auto model = small_model();
      Side side(group, model, options);
      std::vector<double> owed(side.exchange().streams()[0].count());
      const double n = group.size();
      for (uint64_t step = 0; step < kSteps; ++step) {
        side.step(step);
        const auto given = all_gradients(model, group.size(), step);
        size_t at = 0;
        for (size_t t = 0; t < model.size(); ++t)
          for (size_t i = 0; i < model[t].count(); ++i, ++at) {
            for (const Tensors& of_rank : given) owed[at] += of_rank[t][i] / n;
            owed[at] -= side.values[t][i];
          }
      }
      auto kept = sum_of_states(group, side.store(), "model/feedback/residual", owed.size());
      add_what_owners_owe(group, side.store(), "model", kept);
      double largest = 0;
      for (size_t i = 0; i < owed.size(); ++i) {
        // Magnitudes are about 0.01; a few roundings in fp32 each step.
        EXPECT_NEAR(owed[i], kept[i] / n, 3e-8) << options.codec << " value " << i;
        largest = std::max(largest, std::abs(owed[i]));
      }
      EXPECT_EQ(largest > 1e-7, options.codec != "fp32") << "whether there is a residual to see";
    });
  }
}

TEST_P(ExchangeValues, BucketAndChunkSizesChangeNothing) {
  for (const ExchangeOptions& usual_options : codecs_and_methods(GetParam()))
    on_all([&](Group& group) {
      ExchangeOptions options = usual_options;
      std::vector<Tensors> means;
      Side usual(group, small_model(), options);
      for (uint64_t step = 0; step < kSteps; ++step) {
        usual.step(step);
        means.push_back(usual.values);
      }
      for (const size_t bytes : {160, 400, 4000}) {
        options.bucket_bytes = bytes;
        options.chunk_values = bytes / 4;
        Side other(group, small_model(), options);
        for (uint64_t step = 0; step < kSteps; ++step) {
          other.step(step);
          EXPECT_TRUE(same_bits(other.values, means[step]))
              << options.codec << ", buckets of " << bytes;
        }
        EXPECT_TRUE(same_state(other.store().save(), usual.store().save())) << options.codec;
      }
    });
}

TEST_P(ExchangeValues, Bfloat16TensorsAreConvertedBothWays) {
  on_all([](Group& group) {
    Store store;
    const auto exchange = make_exchange(group, store, {{"w", {3}, TensorKind::kLinear}}, {});
    // 1, 2, -4 on rank 0 and 1, 2, 0 on the others, as the upper halves of their fp32.
    const bool first = group.rank() == 0;
    std::vector<uint16_t> bits = {0x3F80, 0x4000, static_cast<uint16_t>(first ? 0xC080 : 0)};
    exchange->start(0, {.data = bits.data(), .count = 3, .dtype = DType::kBFloat16});
    exchange->finish();
    EXPECT_EQ(bits[0], 0x3F80);
    EXPECT_EQ(bits[1], 0x4000);
    const float last = std::bit_cast<float>(static_cast<uint32_t>(bits[2]) << 16);
    EXPECT_NEAR(last, -4.0f / static_cast<float>(group.size()), 4.0f / 256);
  });
}

TEST_P(ExchangeValues, LargeTensorsTravelInParts) {
  on_all([](Group& group) {
    const std::vector<TensorSpec> model = {{"a", {30, 1000}, TensorKind::kLinear},
                                           {"b", {20001}, TensorKind::kLinear}};
    std::vector<ExchangeOptions> all;
    for (const std::string codec : {"fp32", "adacomp", "topk", "test-nearest"})
      all.push_back({.codec = codec});
    for (const std::string codec :
         {"topk", "topk:density=0.2,values=int8", "topk:density=1", "topk:density=0.97,values=bf16",
          "threshold:threshold=0.01,values=sign", "randomk:shared=false", "redsync:quantized=true"})
      all.push_back({.codec = codec, .method = "sparse-reduce"});
    for (ExchangeOptions& options : all) {
      options.bucket_bytes = 20000;
      options.chunk_values = 1000;
      const std::string& codec = options.codec;
      Side side(group, model, options);
      const Terms terms = terms_of(options);
      Oracle oracle(group.size(), model, side.exchange().streams(), codec, terms.feedback,
                    terms.method->name);
      for (uint64_t step = 0; step < 2; ++step) {
        side.step(step);
        EXPECT_TRUE(
            same_bits(side.values, oracle.step(step, all_gradients(model, group.size(), step))))
            << codec << " " << options.method << ", step " << step;
      }
    }
  });
}

// Alone in the world, and nothing to lose in fp32: not a bit changes, nor the sign of a zero.
TEST(ExchangeAlone, OneRankWithFp32GetsBackItsBits) {
  run_local(1, [](Group& group) {
    Side side(group, {{"w", {4}, TensorKind::kLinear}}, {.codec = "fp32"});
    side.values = {{-0.0f, 0.0f, 1e-45f, -3.4e38f}};
    const Tensors given = side.values;
    side.start(0);
    side.exchange().finish();
    EXPECT_TRUE(same_bits(side.values, given));
  });
}

}  // namespace
}  // namespace thinwire::testing
