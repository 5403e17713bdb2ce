// Attackers under rules that tolerate as many: of every kind, in turn and at once, they change
// little.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/random.h"
#include "multirank/misdeeds.h"
#include "multirank/ranks.h"

namespace thinwire::testing {
namespace {

class ExchangeAttackers : public ::testing::TestWithParam<int> {
 protected:
  void on_all(const std::function<void(Group&)>& body) { on_ranks(GetParam(), body); }
};

INSTANTIATE_TEST_SUITE_P(Ranks, ExchangeAttackers, ::testing::ValuesIn(three_ranks_and_more()),
                         ::testing::PrintToStringParamName());
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(ExchangeAttackers);

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

// As many attackers as a rule tolerates, each of which does something else in every step: with one,
// each attack in turn. With `silence` one of them is silent in the last step.
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
    EXPECT_TRUE(same_on_all_ranks(group, side.values)) << what;
    group.set_deadline(kSilence);
  }
}

TEST_P(ExchangeAttackers, OfEveryKindInTurnAndAtOnceChangeLittle) {
  const auto f = static_cast<size_t>(GetParam() - 1) / 2;
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

}  // namespace
}  // namespace thinwire::testing
