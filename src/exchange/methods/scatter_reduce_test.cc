// Tests of scatter-reduce beyond its values: bounds on messages under way, and owners' residuals.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <thread>

#include "exchange/testing/exchange_testing.h"
#include "exchange/testing/tampering_group.h"
#include "exchange/testing/watched_transfer.h"

namespace thinwire::testing {
namespace {

const std::vector<TensorSpec> kModel = {{"w", {kTestBlock * 1000}, TensorKind::kLinear}};

TEST(ScatterReduce, IsWhatBlockLocalCodecsGetByDefault) {
  all_codecs();
  EXPECT_EQ(terms_of({.codec = "test-nearest"}).method->name, "scatter-reduce");
  EXPECT_EQ(terms_of({.codec = "fp16"}).method->name, "scatter-reduce");
  EXPECT_EQ(terms_of({.codec = "topk"}).method->name, "gather");
}

// Sees when parts are sent and means arrive.
class CountingGroup final : public Group {
 public:
  // An answer of an owner stands for so many chunks.
  CountingGroup(std::unique_ptr<Group> inner, int per_answer)
      : inner_(std::move(inner)), per_answer_(per_answer) {
    set_deadline(inner_->deadline());
  }
  int rank() const noexcept override { return inner_->rank(); }
  int size() const noexcept override { return inner_->size(); }
  std::unique_ptr<Transfer> send(std::span<const std::byte> buffer, int to, int tag) override {
    if (tag == 0) {
      most_ = std::max(most_, ++ahead_[to]);
      ++parts_;
    }
    return inner_->send(buffer, to, tag);
  }
  std::unique_ptr<Transfer> receive(std::span<std::byte> buffer, int from, int tag) override {
    auto transfer = inner_->receive(buffer, from, tag);
    if (tag != 1) return transfer;
    return std::make_unique<WatchedTransfer>(std::move(transfer),
                                             [this, from] { ahead_[from] -= per_answer_; });
  }
  std::unique_ptr<Group> split(int colour) override {
    auto part = std::make_unique<CountingGroup>(inner_->split(colour), per_answer_);
    last_split_ = part.get();
    return part;
  }
  void abort(std::string_view reason) noexcept override { inner_->abort(reason); }
  void library_all_reduce(std::span<float> values) override { inner_->library_all_reduce(values); }

  const CountingGroup& last_split() const { return *last_split_; }
  int most() const { return most_; }    // parts ahead of means, of any owner at any time
  int parts() const { return parts_; }  // sent

 private:
  std::unique_ptr<Group> inner_;
  CountingGroup* last_split_ = nullptr;
  const int per_answer_;
  std::map<int, int> ahead_;
  int most_ = 0;
  int parts_ = 0;
};

// One rank comes late, when all the others have long sent what they may. Owners answer with means,
// or say after every half of a window how far they are.
struct Answers {
  Results results;
  const char* combine;
  bool are_means() const { return results == Results::kFull && std::string(combine) == "mean"; }
};
class Bounded : public ::testing::TestWithParam<Answers> {};
INSTANTIATE_TEST_SUITE_P(ScatterReduce, Bounded,
                         ::testing::Values(Answers{Results::kFull, "mean"},
                                           Answers{Results::kShard, "mean"},
                                           Answers{Results::kFull, "cge:f=0"},
                                           Answers{Results::kShard, "cge:f=0"}));

TEST_P(Bounded, ABoundedNumberOfChunksIsOnItsWay) {
  for (const int ranks : {2, 3, 9}) {
    const int window = std::max(4, 32 / (ranks - 1));
    run_local(ranks, [&](Group& group) {
      CountingGroup counting(group.split(0), GetParam().are_means() ? 1 : window / 2);
      Side side(counting, kModel,
                {.codec = "test-nearest",
                 .combine = GetParam().combine,
                 .results = GetParam().results,
                 .chunk_values = kTestBlock});
      if (group.rank() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(200));
      EXPECT_FALSE(side.step(0).skipped);
      const CountingGroup& channel = counting.last_split();
      EXPECT_GT(channel.parts(), 10 * window);
      EXPECT_LE(channel.most(), window);
      if (group.rank() != 0) {
        EXPECT_EQ(channel.most(), window);
      }
    });
  }
}

// Words of owners arrive late.
class LateWords final : public Group {
 public:
  explicit LateWords(std::unique_ptr<Group> inner) : inner_(std::move(inner)) {
    set_deadline(inner_->deadline());
  }
  int rank() const noexcept override { return inner_->rank(); }
  int size() const noexcept override { return inner_->size(); }
  std::unique_ptr<Transfer> send(std::span<const std::byte> buffer, int to, int tag) override {
    return inner_->send(buffer, to, tag);
  }
  std::unique_ptr<Transfer> receive(std::span<std::byte> buffer, int from, int tag) override {
    auto transfer = inner_->receive(buffer, from, tag);
    if (tag != 1 || buffer.size() != 16) return transfer;
    return std::make_unique<Late>(std::move(transfer));
  }
  std::unique_ptr<Group> split(int colour) override {
    return std::make_unique<LateWords>(inner_->split(colour));
  }
  void abort(std::string_view reason) noexcept override { inner_->abort(reason); }
  void library_all_reduce(std::span<float> values) override { inner_->library_all_reduce(values); }

 private:
  class Late final : public Transfer {
   public:
    explicit Late(std::unique_ptr<Transfer> inner) : inner_(std::move(inner)) {}
    bool done() override { return std::chrono::steady_clock::now() > from_ && inner_->done(); }
    std::string describe() const override { return inner_->describe(); }

   private:
    std::unique_ptr<Transfer> inner_;
    std::chrono::steady_clock::time_point from_ =
        std::chrono::steady_clock::now() + std::chrono::milliseconds(10);
  };

  std::unique_ptr<Group> inner_;
};

// Nobody waits for its parts, so that the others have all rows before it has the last word. 247
// chunks for each owner: the last word leaves from a slot that no later chunk needs.
TEST(ScatterReduce, ARankThatSitsOutTakesAllWordsBeforeResults) {
  run_local(4, [&](Group& group) {
    std::unique_ptr<Group> part = group.split(0);
    if (group.rank() == 0) part = std::make_unique<LateWords>(std::move(part));
    Side side(*part, {{"w", {kTestBlock * 4 * 247}, TensorKind::kLinear}},
              {.codec = "test-nearest",
               .combine = "cge:f=1",
               .weighted = true,
               .chunk_values = kTestBlock});
    if (group.rank() == 0) side.exchange().abstain(Abstention::kSitsOut);
    EXPECT_FALSE(side.step(0).skipped);
    EXPECT_TRUE(same_on_all_ranks(group, side.values));
  });
}

// The same mean again and again: what one message lost, the next ones bring.
TEST(ScatterReduce, OwnersMakeUpForWhatTheirCodecLoses) {
  for (const std::string feedback : {"residual", "none"})
    run_local(3, [&](Group& group) {
      Side side(group, kModel, {.codec = "test-nearest", .feedback = feedback});
      const Values same = gradient(kModel[0], group.rank(), 0);
      std::vector<double> mean(same.size()), sum(same.size());
      for (int rank = 0; rank < 3; ++rank) {
        const Values of_rank = gradient(kModel[0], rank, 0);
        for (size_t i = 0; i < mean.size(); ++i) mean[i] += of_rank[i] / 3.0;
      }
      constexpr int kSteps = 200;
      for (int step = 0; step < kSteps; ++step) {
        side.values = {same};
        side.start(0);
        side.exchange().finish();
        for (size_t i = 0; i < sum.size(); ++i) sum[i] += side.values[0][i];
      }
      double worst = 0;
      for (size_t i = 0; i < sum.size(); ++i)
        worst = std::max(worst, std::abs(sum[i] / kSteps - mean[i]));
      // Values are up to 0.05, so a code is off by up to 0.0002, in each step the same way.
      EXPECT_LT(worst, feedback == "residual" ? 5e-6 : 1e-3);
      EXPECT_GT(worst, feedback == "residual" ? 0 : 2e-5);
    });
}

// What is remembered of a stream, in units of the mean, position by position.
std::vector<double> owed(const std::vector<StateArrays>& saved) {
  std::vector<double> sum(kModel[0].count());
  for (const StateArrays& of_rank : saved) {
    Values residual(sum.size());
    int64_t piece[3] = {};
    EXPECT_TRUE(copy_state(of_rank, "w/feedback/residual", std::span(residual)));
    EXPECT_TRUE(copy_state(of_rank, "w/owner/pieces", piece));
    Values owner(static_cast<size_t>(piece[1]));
    EXPECT_TRUE(copy_state(of_rank, "w/owner/residual", std::span(owner)));
    for (size_t i = 0; i < sum.size(); ++i)
      sum[i] += residual[i] / static_cast<double>(saved.size());
    for (size_t i = 0; i < owner.size(); ++i) sum[static_cast<size_t>(piece[0]) + i] += owner[i];
  }
  return sum;
}

TEST(ScatterReduce, WhatIsOwedSurvivesAnotherNumberOfRanks) {
  const ExchangeOptions options{.codec = "test-nearest", .chunk_values = 3000};
  const auto step_and_save = [&](size_t ranks, const std::vector<StateArrays>& from, bool step) {
    std::vector<StateArrays> saved(ranks);
    run_local(static_cast<int>(ranks), [&](Group& group) {
      const auto store = std::make_shared<Store>();
      if (!from.empty()) {
        EXPECT_TRUE(store->load(from, group.rank(), group.size()));
      }
      Side side(group, kModel, options, store);
      EXPECT_TRUE(store->unclaimed().empty());
      if (step) side.step(0);
      saved[static_cast<size_t>(group.rank())] = store->save();
    });
    return saved;
  };
  const auto three = step_and_save(3, {}, true);
  const std::vector<double> before = owed(three);
  EXPECT_GT(*std::max_element(before.begin(), before.end()), 1e-6);
  for (const size_t ranks : {1, 2, 3, 4}) {
    const std::vector<double> after = owed(step_and_save(ranks, three, false));
    for (size_t i = 0; i < before.size(); ++i) ASSERT_NEAR(after[i], before[i], 1e-10) << ranks;
  }
  step_and_save(4, three, true);
}

// An exchange built again over the same store, with a codec of other blocks, goes on with what the
// owners have of their new shards.
TEST(ScatterReduce, OwnersKeepTheirMemoryWithAnotherCodec) {
  run_local(3, [](Group& group) {
    const auto store = std::make_shared<Store>();
    ExchangeOptions options{
        .codec = "test-nearest", .feedback = "residual", .method = "scatter-reduce"};
    { Side(group, kModel, options, store).step(0); }
    const auto owed = [&] { return owed_by_owner(store->save(), "w", kModel[0].count()).value(); };
    const Values before = owed();
    options.codec = "bf16";
    Side side(group, kModel, options, store);
    EXPECT_EQ(owed(), before);  // in the new shard, or astray
    EXPECT_FALSE(side.step(1).skipped);
    const Values after = owed();
    size_t own = 0, astray = 0;
    for (size_t i = 0; i < after.size(); ++i)
      (i / 8000 == static_cast<size_t>(group.rank()) ? own : astray) += after[i] != 0;
    EXPECT_GT(own, 4000u);
    EXPECT_EQ(astray, 0u);  // that has gone into the gradient
  });
}

// Of signum, whatever is summed: the result is the sign that most ranks have, and where as many
// have the other, 1 and -1 in turn.
TEST(ScatterReduce, MakesSignsAMajorityVote) {
  for (const int ranks : {2, 3, 4, 5}) {
    run_local(ranks, [ranks](Group& group) {
      Side side(group, kModel, {.codec = "signum"});
      for (uint64_t number = 0; number < 2; ++number) {
        const auto all = all_gradients(kModel, ranks, number);
        ASSERT_FALSE(side.step(number).skipped);
        if (number > 0) continue;  // then averages vote, not gradients
        for (size_t i = 0; i < side.values[0].size(); ++i) {
          int votes = 0;
          for (const Tensors& given : all) {
            const float g = given[0][i];
            votes += g > 0 || (g == 0 && i % 2 == 0) ? 1 : -1;
          }
          const bool positive = votes > 0 || (votes == 0 && i % 2 == 0);
          ASSERT_EQ(side.values[0][i], positive ? 1 : -1) << i << " of " << ranks << " ranks";
        }
        EXPECT_FALSE(side.store().save().empty());
        for (const StateArray& array : side.store().save())
          EXPECT_EQ(array.name.find("owner"), std::string::npos) << array.name;
      }
    });
  }
}

TEST(ScatterReduce, MemoriesThatDisagreeInAScheduleAreToBeChosen) {
  const auto settled = resolve_terms({.codec = "signum | 1: int8"}, 0);
  ASSERT_FALSE(settled);
  EXPECT_NE(settled.status().message().find("choose one as feedback"), std::string::npos);
  EXPECT_EQ(terms_of({.codec = "fp32 | 1: signum"}).feedback, "momentum");
  EXPECT_EQ(terms_of({.codec = "terngrad"}).feedback, "none");
}

}  // namespace
}  // namespace thinwire::testing
