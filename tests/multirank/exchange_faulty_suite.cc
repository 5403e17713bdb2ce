// Faulty ranks under a rule that tolerates them, by gather: the others leave them out and go on, with the same bits.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <cstring>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "comm/sealed_words.h"
#include "core/random.h"
#include "exchange/testing/exchange_testing.h"
#include "exchange/testing/rule_oracles.h"
#include "exchange/testing/sending_group.h"
#include "exchange/testing/tampering_group.h"
#include "multirank/ranks.h"
#include "thinwire/frame.h"

namespace thinwire::testing {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

constexpr int kAccounts = 29002;  // tags of values are below
constexpr milliseconds kSilence{2500};

class ExchangeFaulty : public ::testing::TestWithParam<int> {
 protected:
  void on_all(const std::function<void(Group&)>& body) { on_ranks(GetParam(), body); }
  int most() const { return (GetParam() - 1) / 2; }
};

std::vector<int> three_and_more() {
  std::vector<int> counts = rank_counts();
  std::erase_if(counts, [](int count) { return count < 3; });
  return counts;
}
INSTANTIATE_TEST_SUITE_P(Ranks, ExchangeFaulty, ::testing::ValuesIn(three_and_more()),
                         ::testing::PrintToStringParamName());
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(ExchangeFaulty);

const std::vector<TensorSpec> kModel{{"a", {3}, TensorKind::kLinear},
                                     {"b", {40, 25}, TensorKind::kLinear},
                                     {"c", {17, 9}, TensorKind::kLinear}};

// Several buckets.
ExchangeOptions by_gather(const std::string& rule, const std::string& codec = "fp32") {
  return {.codec = codec,
          .method = "gather",
          .combine = rule,
          .grouping = Grouping::kTensor,
          .bucket_bytes = 700};
}

bool is_frame(int tag, std::span<const std::byte> message) {
  return tag < kAccounts && message.size() > 8;
}

// Changes header and payload of the first frame, and seals it again.
using Change = std::function<void(FrameHeader& header, std::span<std::byte> payload)>;
void change_frame(std::span<std::byte> message, const Change& change) {
  FrameHeader header = read_frame(message).value().header;
  const auto frame = message.first(kFrameHeaderSize + header.payload_size);
  change(header, frame.subspan(kFrameHeaderSize));
  seal_frame(header, frame);
}

// What a rank does to its own messages, and what becomes of it.
struct Misdeed {
  std::string name;
  LeftOutFor why;
  Censor censor;
  bool seen_by_all = true;  // or by f ranks at most, who might lie
};

std::vector<Misdeed> misdeeds() {
  const auto to_frames = [](const std::function<void(int to, std::span<std::byte>)>& change) {
    return [change](int to, int tag, std::span<std::byte> message) {
      if (is_frame(tag, message)) change(to, message);
      return true;
    };
  };
  using Bytes = std::span<std::byte>;
  return {
      {"a bit flips on the way", LeftOutFor::kCorruption,
       to_frames([](int, Bytes m) { m.back() ^= std::byte{1}; })},
      {"of an earlier step", LeftOutFor::kCorruption,
       to_frames([](int, Bytes m) { change_frame(m, [](FrameHeader& h, Bytes) { --h.step; }); })},
      {"of another stream", LeftOutFor::kCorruption,
       to_frames([](int, Bytes m) { change_frame(m, [](FrameHeader& h, Bytes) { ++h.stream; }); })},
      {"a bad payload with a good seal", LeftOutFor::kCorruption, to_frames([](int, Bytes m) {
         change_frame(m, [](FrameHeader&, Bytes payload) {
           std::fill(payload.begin(), payload.end(), std::byte{0xFF});  // NaN
         });
       })},
      {"other values to ranks of odd numbers", LeftOutFor::kEquivocation,
       to_frames([](int to, Bytes m) {
         change_frame(
             m, [&](FrameHeader&, Bytes payload) { payload[0] ^= static_cast<std::byte>(to % 2); });
       }),
       false},
      {"a damaged message to rank 0 alone", LeftOutFor::kCorruption, to_frames([](int to, Bytes m) {
         if (to == 0) m.back() ^= std::byte{1};
       }),
       false}};
}

// Rows of all ranks but those that are left out.
Rows rows_without(const std::vector<int>& out, int ranks, uint64_t step) {
  Rows rows;
  for (int rank = 0; rank < ranks; ++rank) {
    if (std::find(out.begin(), out.end(), rank) != out.end()) continue;
    Row& row = rows.emplace_back();
    for (const Values& values : gradients(kModel, rank, step))
      row.insert(row.end(), values.begin(), values.end());
  }
  return rows;
}

void expect_result(const Side& side, const Row& expected, const std::string& what) {
  size_t place = 0;
  for (const Values& values : side.values)
    for (const float value : values) ASSERT_NEAR(value, expected[place++], 1e-6) << what;
}

void expect_same_everywhere(Group& group, const Tensors& tensors, const std::string& what) {
  uint64_t sum = 0;
  for (const Values& values : tensors)
    sum = checksum(std::as_bytes(std::span(&sum, 1)), std::as_bytes(std::span(values)));
  EXPECT_EQ(group.max(sum), sum) << what;
  EXPECT_EQ(group.max(~sum), ~sum) << what;
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
        expect_same_everywhere(group, side.values, what);
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
        expect_same_everywhere(group, side.values,
                               rule + ", " + codec + " of " + std::to_string(n));
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
        expect_same_everywhere(group, side.values, name);
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
        expect_same_everywhere(group, side.values, "damage");
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
      expect_same_everywhere(group, side.values, "late accounts");
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
      expect_same_everywhere(group, side.values, "twofold");
    }
  });
}

// It sends no values, and takes part in the agreement or not.
TEST_P(ExchangeFaulty, ASilentRankIsWaitedForUntilTheDeadline) {
  const int n = GetParam();
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

// Others go on without it, it takes the same results, and it is one of them again when it has caught up.
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
    for (const Tensors& tensors : results) expect_same_everywhere(group, tensors, "slow");
  });
}

// What an attacker does in a step. It knows what the honest ranks send.
struct Attack {
  std::string name;
  std::function<void(Row& own, const Rows& honest, const RandomKey& key)> on_values;  // or:
  std::optional<size_t> misdeed;                                                      // on messages
  std::optional<LeftOutFor> left_out_for;
};

std::vector<Attack> attacks() {
  const auto of_means = [](double mean_times, double deviations) {
    return [=](Row& own, const Rows& honest, const RandomKey&) {
      for (size_t i = 0; i < own.size(); ++i) {
        double mean = 0, square = 0;
        for (const Row& row : honest) mean += row[i] / static_cast<double>(honest.size());
        for (const Row& row : honest)
          square += (row[i] - mean) * (row[i] - mean) / static_cast<double>(honest.size());
        own[i] = mean_times * mean + deviations * std::sqrt(square);
      }
    };
  };
  const auto times = [](double factor) {
    return [=](Row& own, const Rows&, const RandomKey&) {
      for (double& x : own) x *= factor;
    };
  };
  return {
      {"sign flip", times(-1e4), {}, {}},
      {"other values to ranks of odd numbers", {}, 4, LeftOutFor::kEquivocation},
      {"noise",
       [](Row& own, const Rows&, const RandomKey& key) {
         for (size_t i = 0; i < own.size(); ++i) own[i] = 200.0 * random_normal(key, i);
       },
       {},
       {}},
      {"a little is enough", of_means(1, -1.5), {}, {}},
      {"a bit flips on the way", {}, 0, LeftOutFor::kCorruption},
      {"inner products", of_means(-1e4, 0), {}, {}},
      {"mimic", [](Row& own, const Rows& honest, const RandomKey&) { own = honest[0]; }, {}, {}},
      {"NaN", times(NAN), {}, LeftOutFor::kNonFinite},
      {"zeros", times(0), {}, {}},
      {"of an earlier step", {}, 1, LeftOutFor::kCorruption},
      {"a bad payload with a good seal", {}, 3, LeftOutFor::kCorruption}};
}

// As many attackers as a rule tolerates, each of which does something else in every step: with one, each attack
// in turn. With `silence` one of them is silent in the last step.
void expect_that_attackers_change_little(Group& group, const std::string& rule, size_t f,
                                         const std::string& codec, bool silence) {
  const auto n = static_cast<size_t>(group.size());
  const auto rank = static_cast<size_t>(group.rank());
  const std::vector<Attack> kinds = attacks();
  const std::vector<Misdeed> on_messages = misdeeds();
  const auto kind_of = [&](size_t attacker, uint64_t step) -> const Attack& {
    return kinds[(step + 5 * (n - 1 - attacker)) % kinds.size()];
  };
  uint64_t now = 0;
  SendingGroup sending(group, [&](int to, int tag, std::span<std::byte> message) {
    if (rank < n - f) return true;
    if (now == kinds.size() && rank == n - 1) return tag >= kAccounts;
    const Attack& mine = kind_of(rank, now);
    return !mine.misdeed || on_messages[*mine.misdeed].censor(to, tag, message);
  });
  sending.set_deadline(kSilence);
  group.set_deadline(kSilence);
  Side side(sending, kModel, by_gather(rule, codec));
  for (uint64_t step = 0; step < kinds.size() + silence; ++step) {
    now = step;
    const Rows honest = [&] {
      std::vector<int> out;
      for (size_t attacker = n - f; attacker < n; ++attacker)
        out.push_back(static_cast<int>(attacker));
      return rows_without(out, group.size(), step);
    }();
    std::vector<LeftOut> expected;
    for (size_t attacker = n - f; attacker < n; ++attacker) {
      const bool silent = step == kinds.size() && attacker == n - 1;
      if (silent)
        expected.push_back({static_cast<int>(attacker), LeftOutFor::kSilence});
      else if (const auto why = kind_of(attacker, step).left_out_for)
        expected.push_back({static_cast<int>(attacker), *why});
    }
    side.values = gradients(kModel, group.rank(), step);
    std::string what =
        rule + ", " + codec + ", " + std::to_string(n) + " ranks, step " + std::to_string(step);
    if (rank >= n - f && kind_of(rank, step).on_values) {
      Row own;
      for (const Values& values : side.values) own.insert(own.end(), values.begin(), values.end());
      kind_of(rank, step).on_values(own, honest, {.seed = 7, .step = step, .stream = 3});
      size_t place = 0;
      for (Values& values : side.values)
        for (float& value : values) value = static_cast<float>(own[place++]);
    }
    for (size_t i = kModel.size(); i-- > 0;) side.start(i);
    const StepReport report = side.exchange().finish();
    EXPECT_FALSE(report.skipped) << what;
    EXPECT_EQ(report.left_out, expected) << what;
    const bool by_column = rule == "median" || rule.starts_with("trimmed_mean");
    size_t place = 0;
    for (const Values& values : side.values)
      for (const float value : values) {
        double least = -0.3, most = 0.3;
        if (by_column && codec == "fp32") {
          least = most = honest[0][place];
          for (const Row& row : honest) {
            least = std::min(least, row[place]);
            most = std::max(most, row[place]);
          }
        }
        ++place;
        ASSERT_GE(value, least - 1e-6) << what;
        ASSERT_LE(value, most + 1e-6) << what;
      }
    group.set_deadline(std::chrono::seconds(20));
    expect_same_everywhere(group, side.values, what);
    group.set_deadline(kSilence);
  }
}

TEST_P(ExchangeFaulty, AttackersOfEveryKindInTurnAndAtOnceChangeLittle) {
  const auto f = static_cast<size_t>(most());
  const std::string with_f = ":f=" + std::to_string(f);
  std::vector<std::pair<std::string, size_t>> rules = {
      {"median", f},       {"trimmed_mean" + with_f, f}, {"geometric_median", f},
      {"caf" + with_f, f}, {"smea" + with_f, f},         {"centred_clipping:tau=1", f}};
  if (GetParam() >= 5) {
    const auto fewer = static_cast<size_t>(GetParam() - 3) / 2;
    rules.emplace_back("multi_krum:f=" + std::to_string(fewer), fewer);
  }
  for (size_t i = 0; i < rules.size(); ++i)
    on_all([&](Group& group) {
      expect_that_attackers_change_little(group, rules[i].first, rules[i].second,
                                          i % 2 == 0 ? "fp32" : "int8", i == 1);
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
