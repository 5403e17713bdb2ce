// Faulty ranks under a rule that tolerates them, by gather: the others leave them out and go on,
// with the same bits.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "comm/sealed_words.h"
#include "exchange/testing/exchange_testing.h"
#include "exchange/testing/rule_oracles.h"
#include "exchange/testing/sending_group.h"
#include "multirank/misdeeds.h"
#include "multirank/ranks.h"

namespace thinwire::testing {
namespace {

using std::chrono::milliseconds;

class ExchangeFaulty : public ::testing::TestWithParam<int> {
 protected:
  void on_all(const std::function<void(Group&)>& body) { on_ranks(GetParam(), body); }
  int most() const { return (GetParam() - 1) / 2; }
};

INSTANTIATE_TEST_SUITE_P(Ranks, ExchangeFaulty, ::testing::ValuesIn(three_ranks_and_more()),
                         ::testing::PrintToStringParamName());
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(ExchangeFaulty);

void expect_result(const Side& side, const Row& expected, const std::string& what) {
  size_t place = 0;
  for (const Values& values : side.values)
    for (const float value : values) ASSERT_NEAR(value, expected[place++], 1e-6) << what;
}

Row trimmed(const Rows& rows, size_t f) { return trimmed_mean_oracle(rows, f); }

TEST_P(ExchangeFaulty, OneFaultyRankIsLeftOutOfItsStepAlone) {
  const int n = GetParam();
  const size_t f = static_cast<size_t>(most());
  for (const Misdeed& misdeed : misdeeds())
    on_all([&](Group& group) {
      bool armed = false;
      SendingGroup sending(group, [&](int to, int tag, std::span<std::byte> message) {
        return !armed || misdeed.censor(to, tag, message);
      });
      Side side(sending, kModel, by_gather("trimmed_mean:f=" + std::to_string(f)));
      for (uint64_t step = 0; step < 4; ++step) {
        armed = group.rank() == n - 1 && step == 1;
        const StepReport report = side.step(step);
        const std::string what = misdeed.name + ", step " + std::to_string(step);
        EXPECT_FALSE(report.skipped) << what;
        const std::vector<int> out = step == 1 ? std::vector<int>{n - 1} : std::vector<int>{};
        EXPECT_EQ(report.participants, static_cast<uint64_t>(n) - out.size());
        ASSERT_EQ(report.left_out.size(), out.size()) << what;
        if (step == 1) {
          EXPECT_EQ(report.left_out[0], (LeftOut{n - 1, misdeed.why})) << what;
        }
        // Where accusers may lie, a rule that has rows to spare still expects f faulty ranks.
        const bool excused =
            step == 1 && (misdeed.seen_by_all || out.size() + 2 * f + 1 > static_cast<size_t>(n));
        expect_result(side, trimmed(rows_without(out, n, step), f - excused), what);
        EXPECT_TRUE(same_on_all_ranks(group, side.values)) << what;
      }
    });
}

TEST_P(ExchangeFaulty, NaNOnOneRankIsItsOwnFault) {
  const int n = GetParam();
  for (const std::string rule : {"median", "cge:f=1", "geometric_median", "nnm:f=1 then cge:f=1"})
    for (const std::string codec : {"fp32", "int8", "topk:density=0.1"})
      on_all([&](Group& group) {
        Side side(group, kModel, by_gather(rule, codec));
        side.step(0);
        side.values = gradients(kModel, group.rank(), 1);
        if (group.rank() == 1) side.values[1].back() = NAN;
        for (size_t i = kModel.size(); i-- > 0;) side.start(i);
        const StepReport report = side.exchange().finish();
        EXPECT_FALSE(report.skipped) << rule;
        EXPECT_EQ(report.left_out, std::vector<LeftOut>({{1, LeftOutFor::kNonFinite}})) << rule;
        for (const Values& values : side.values)
          for (const float value : values) ASSERT_LE(std::abs(value), 0.2f) << rule;
        EXPECT_TRUE(same_on_all_ranks(group, side.values))
            << rule + ", " + codec + " of " + std::to_string(n);
      });
}

// Each of f ranks has a fault of its own kind.
TEST_P(ExchangeFaulty, AsManyFaultsAtOnceAsTheRuleTolerates) {
  const int n = GetParam(), f = most();
  const std::vector<Misdeed> kinds = misdeeds();
  for (const std::string name : {"trimmed_mean:f=", "cge:f=", "mda:f="})
    on_all([&](Group& group) {
      const int mine = group.rank() - (n - f);
      bool armed = false;
      SendingGroup sending(group, [&](int to, int tag, std::span<std::byte> message) {
        return !armed || kinds[static_cast<size_t>(mine)].censor(to, tag, message);
      });
      Side side(sending, kModel, by_gather(name + std::to_string(f)));
      for (uint64_t step = 0; step < 3; ++step) {
        armed = step == 1 && mine >= 0;
        const StepReport report = side.step(step);
        EXPECT_FALSE(report.skipped) << name;
        ASSERT_EQ(report.left_out.size(), step == 1 ? static_cast<size_t>(f) : 0) << name;
        for (size_t i = 0; i < report.left_out.size(); ++i)
          EXPECT_EQ(report.left_out[i], (LeftOut{n - f + static_cast<int>(i), kinds[i].why}));
        if (step == 1) {  // nobody is left who may be faulty: the mean of the honest
          const Rows rows = rows_without(
              [&] {
                std::vector<int> out;
                for (int rank = n - f; rank < n; ++rank) out.push_back(rank);
                return out;
              }(),
              n, step);
          expect_result(side, trimmed(rows, 0), name);
        }
        EXPECT_TRUE(same_on_all_ranks(group, side.values)) << name;
      }
    });
}

TEST_P(ExchangeFaulty, OneMoreThanTheRuleToleratesSkipsTheStep) {
  const int n = GetParam(), f = most();
  on_all([&](Group& group) {
    bool armed = false;
    SendingGroup sending(group, [&](int /*to*/, int tag, std::span<std::byte> message) {
      if (armed && is_frame(tag, message)) message.back() ^= std::byte{1};
      return true;
    });
    ExchangeOptions options = by_gather("trimmed_mean:f=" + std::to_string(f), "topk:density=0.1");
    Side side(sending, kModel, options);
    side.step(0);
    const StateArrays before = side.store().save();
    armed = group.rank() < f + 1;
    const StepReport report = side.step(1);
    EXPECT_TRUE(report.skipped);
    EXPECT_EQ(report.fault.code, ErrorCode::kCorrupt);
    EXPECT_EQ(report.fault.rank, 0);
    EXPECT_EQ(report.left_out.size(), static_cast<size_t>(f + 1));
    EXPECT_EQ(report.participants, static_cast<uint64_t>(n - f - 1));
    EXPECT_TRUE(same_state(side.store().save(), before));
    for (const Values& values : side.values)
      for (const float value : values) EXPECT_EQ(value, 0);
    armed = false;
    EXPECT_FALSE(side.step(2).skipped);
  });
}

// What a rank that is left out owed, it still owes; the others' memories go on.
TEST_P(ExchangeFaulty, MemoriesOfRanksThatAreLeftOutStayAsTheyWere) {
  const int n = GetParam();
  for (const std::string codec : {"topk:density=0.1", "int4", "sidco:density=0.1"})
    on_all([&](Group& group) {
      const bool culprit = group.rank() == n - 1;
      bool armed = false;
      SendingGroup sending(group, [&](int to, int tag, std::span<std::byte> message) {
        return !armed || misdeeds()[0].censor(to, tag, message);
      });
      ExchangeOptions options = by_gather("median", codec);
      options.feedback = "residual";
      Side side(sending, kModel, options), clean(sending, kModel, options);
      side.step(0);
      clean.step(0);
      const StateArrays before = side.store().save();
      armed = culprit;
      EXPECT_EQ(side.step(1).left_out.size(), 1u);
      armed = false;
      clean.step(1);
      EXPECT_TRUE(same_state(side.store().save(), culprit ? before : clean.store().save()))
          << codec;
    });
}

// What one rank does not understand it hears from the others.
TEST_P(ExchangeFaulty, DamageInTheAgreementLeavesOutRanksThatNobodyUnderstands) {
  const int n = GetParam();
  for (const bool to_all : {false, true})
    on_all([&](Group& group) {
      bool armed = false;
      SendingGroup sending(group, [&](int to, int tag, std::span<std::byte> message) {
        if (armed && tag == kAccounts && (to_all || to == 0)) message[20] ^= std::byte{1};
        return true;
      });
      Side side(sending, kModel, by_gather("median"));
      for (uint64_t step = 0; step < 3; ++step) {
        armed = group.rank() == n - 1 && step == 1;
        const StepReport report = side.step(step);
        EXPECT_FALSE(report.skipped);
        std::vector<LeftOut> expected;
        if (to_all && step == 1) expected.push_back({n - 1, LeftOutFor::kSilence});
        EXPECT_EQ(report.left_out, expected) << "step " << step;
        EXPECT_TRUE(same_on_all_ranks(group, side.values)) << "damage";
      }
    });
}

// In the last round one rank alone would hear of it, and could not pass it on.
TEST_P(ExchangeFaulty, AccountsThatComeAfterTheFirstRoundAreNotTaken) {
  const int n = GetParam();
  const auto last = static_cast<uint64_t>(std::max(2, most() + 1) - 1);
  on_all([&](Group& group) {
    bool armed = false;
    std::vector<uint64_t> own;  // what it says of itself in the first round
    SendingGroup sending(group, [&](int to, int tag, std::span<std::byte> message) {
      if (!armed || tag != kAccounts) return true;
      std::vector<uint64_t> words(message.size() / 8);
      std::memcpy(words.data(), message.data(), message.size());
      const auto row =
          std::span(words).subspan(2 + static_cast<size_t>((n - 1) * n), static_cast<size_t>(n));
      if (words[1] == 0) own.assign(row.begin(), row.end());
      std::copy(own.begin(), own.end(), row.begin());
      words.back() = seal_of(std::span(words).first(words.size() - 1), words[0], n - 1);
      if (words[1] != last || to != 0)
        words.back() ^= 1;  // nobody else understands it, nor anybody before
      std::memcpy(message.data(), words.data(), message.size());
      return true;
    });
    Side side(sending, kModel, by_gather("median"));
    for (uint64_t step = 0; step < 3; ++step) {
      armed = group.rank() == n - 1 && step == 1;
      const StepReport report = side.step(step);
      EXPECT_FALSE(report.skipped);
      std::vector<LeftOut> expected;
      if (step == 1) expected.push_back({n - 1, LeftOutFor::kSilence});
      EXPECT_EQ(report.left_out, expected) << "step " << step;
      EXPECT_TRUE(same_on_all_ranks(group, side.values)) << "late accounts";
    }
  });
}

// It tells every other rank something else of what it received, and nothing else is wrong with it.
TEST_P(ExchangeFaulty, TwofoldAccountsAreEquivocationToo) {
  const int n = GetParam();
  on_all([&](Group& group) {
    SendingGroup sending(group, [&](int to, int tag, std::span<std::byte> message) {
      if (group.rank() != n - 1 || tag != kAccounts) return true;
      std::vector<uint64_t> words(message.size() / 8);
      std::memcpy(words.data(), message.data(), message.size());
      words[2 + static_cast<size_t>(n - 1) * static_cast<size_t>(n)] +=
          static_cast<uint64_t>(to);  // of rank 0
      words.back() = seal_of(std::span(words).first(words.size() - 1), words[0], n - 1);
      std::memcpy(message.data(), words.data(), message.size());
      return true;
    });
    Side side(sending, kModel, by_gather("median"));
    for (uint64_t step = 0; step < 2; ++step) {
      const StepReport report = side.step(step);
      EXPECT_FALSE(report.skipped);
      EXPECT_EQ(report.left_out, std::vector<LeftOut>({{n - 1, LeftOutFor::kEquivocation}}));
      EXPECT_TRUE(same_on_all_ranks(group, side.values)) << "twofold";
    }
  });
}

// It sends no values, and takes part in the agreement or not.
TEST_P(ExchangeFaulty, ASilentRankIsWaitedForUntilTheDeadline) {
  const int n = GetParam();
  if (n != 3 && n != 9) GTEST_SKIP() << "10 s each; the fewest and the most ranks are enough";
  const size_t f = static_cast<size_t>(most());
  for (const bool in_all : {false, true})
    on_all([&](Group& group) {
      bool armed = false;
      SendingGroup sending(group, [&](int /*to*/, int tag, std::span<std::byte> /*message*/) {
        return !armed || (!in_all && tag >= kAccounts);
      });
      sending.set_deadline(kSilence);
      group.set_deadline(kSilence);
      Side side(sending, kModel, by_gather("trimmed_mean:f=" + std::to_string(f)));
      for (uint64_t step = 0; step < 3; ++step) {
        armed = group.rank() == n - 1 && step >= 1;
        const auto since = std::chrono::steady_clock::now();
        const StepReport report = side.step(step);
        EXPECT_FALSE(report.skipped);
        const std::vector<int> out = step >= 1 ? std::vector<int>{n - 1} : std::vector<int>{};
        if (group.rank() == n - 1 && in_all) continue;  // nobody hears that it is there
        EXPECT_LT(std::chrono::steady_clock::now() - since, kSilence * 3);
        ASSERT_EQ(report.left_out.size(), out.size()) << "step " << step;
        if (step >= 1) {
          EXPECT_EQ(report.left_out[0], (LeftOut{n - 1, LeftOutFor::kSilence}));
        }
        expect_result(side, trimmed(rows_without(out, n, step), f - out.size()), "");
      }
      // The silent rank may be behind on a busy machine, and could not hear those who have left.
      group.set_deadline(milliseconds(30000));
      group.barrier();
    });
}

// Others go on without it, it takes the same results, and it is one of them again when it has
// caught up.
TEST_P(ExchangeFaulty, ASlowRankCatchesUp) {
  const int n = GetParam();
  constexpr uint64_t kSteps = 6;
  on_all([&](Group& group) {
    group.set_deadline(milliseconds(1500));
    std::vector<Tensors> results;
    bool was_out = false, is_in = false;
    {
      Side side(group, kModel, by_gather("median"));
      for (uint64_t step = 0; step < kSteps; ++step) {
        if (step == 1 && group.rank() == n - 1) std::this_thread::sleep_for(milliseconds(2200));
        const StepReport report = side.step(step);
        EXPECT_FALSE(report.skipped);
        was_out |= !report.left_out.empty();
        is_in = report.left_out.empty();
        results.push_back(side.values);
      }
    }
    EXPECT_TRUE(was_out);
    EXPECT_TRUE(is_in);
    group.set_deadline(std::chrono::seconds(20));
    for (const Tensors& tensors : results) EXPECT_TRUE(same_on_all_ranks(group, tensors)) << "slow";
  });
}

TEST_P(ExchangeFaulty, RanksThatAskToSkipAreLeftOut) {
  on_all([&](Group& group) {
    Side side(group, kModel, by_gather("median"));
    if (group.rank() == 0) side.exchange().abstain(Abstention::kSkipsStep);
    const StepReport one = side.step(0);
    EXPECT_FALSE(one.skipped);
    EXPECT_EQ(one.left_out, std::vector<LeftOut>({{0, LeftOutFor::kRequest}}));
    side.exchange().abstain(Abstention::kSkipsStep);
    const StepReport all = side.step(1);
    EXPECT_TRUE(all.skipped);
    EXPECT_EQ(describe(all.fault), "rank 0 asked to skip the step");
    EXPECT_TRUE(side.step(2).left_out.empty());
  });
}

}  // namespace
}  // namespace thinwire::testing
