// Tests of accounts: whom they leave out, and what liars can bring about.
// SPDX-License-Identifier: Apache-2.0
#include "exchange/faulty/account.h"

#include <gtest/gtest.h>

#include <vector>

#include "exchange/rules/combine.h"

namespace thinwire {
namespace {

// All ranks received the same from all.
class AllAccounts {
 public:
  explicit AllAccounts(size_t ranks) : ranks_(ranks), words_(ranks * ranks) {
    for (size_t by = 0; by < ranks; ++by)
      for (size_t of = 0; of < ranks; ++of) set(by, of, account_of_digest(100 + of));
  }

  void set(size_t by, size_t of, Account account) { words_[by * ranks_ + of] = account; }
  void set_row(size_t by, Account account) {
    for (size_t of = 0; of < ranks_; ++of) set(by, of, account);
  }

  // "3 equivocation, 4 silence?": a question mark where it is not proven.
  std::string decision(size_t most) const {
    std::string text;
    for (const Decision::Entry& entry : decide(words_, ranks_, most).left_out)
      text += (text.empty() ? "" : ", ") + std::to_string(entry.left_out.rank) + " " +
              std::string(to_string(entry.left_out.why)) + (entry.proven ? "" : "?");
    return text;
  }

 private:
  size_t ranks_;
  std::vector<Account> words_;
};

const Account kOther = account_of_digest(7);
const Account kSilent = account_of_fault(LeftOutFor::kSilence);

TEST(Account, FaultsAndStreamsAreReadBack) {
  const Account account = account_of_fault(LeftOutFor::kNonFinite, 300);
  EXPECT_FALSE(is_digest(account));
  EXPECT_EQ(fault_in(account), LeftOutFor::kNonFinite);
  EXPECT_EQ(stream_in(account), 300u);
  EXPECT_NE(account_of_fault(LeftOutFor::kSilence), kNoAccount);
  EXPECT_TRUE(is_digest(account_of_digest(0)));
  // No rank writes these, and a hostile one may.
  for (const Account none : {Account{0x100}, account_of_fault(LeftOutFor::kEquivocation) + 1})
    EXPECT_EQ(fault_in(none), LeftOutFor::kCorruption);
}

TEST(Account, NobodyIsLeftOutWhereAllReceivedTheSame) {
  for (size_t ranks = 1; ranks <= 9; ++ranks)
    EXPECT_EQ(AllAccounts(ranks).decision((ranks - 1) / 2), "");
}

TEST(Account, ARankWithoutAccountsWasSilent) {
  AllAccounts all(5);
  all.set_row(3, kNoAccount);
  EXPECT_EQ(all.decision(2), "3 silence");
}

TEST(Account, WhatARankSaysOfItselfNeedsNoProof) {
  AllAccounts all(5);
  all.set(1, 1, account_of_fault(LeftOutFor::kRequest));
  all.set_row(2, account_of_fault(LeftOutFor::kEquivocation));
  EXPECT_EQ(all.decision(2), "1 its own request, 2 equivocation");
}

TEST(Account, OthersProveAFaultIfTheyAreMoreThanTheLiars) {
  AllAccounts all(7);
  for (const size_t by : {0, 1, 2, 3}) all.set(by, 6, kSilent);
  for (const size_t by : {0, 1, 2}) all.set(by, 5, kOther);
  EXPECT_EQ(all.decision(3), "5 equivocation?, 6 silence");
}

// One that was told another thing outweighs those that got a damaged one.
TEST(Account, EquivocationIsNamed) {
  AllAccounts all(7);
  all.set(0, 6, account_of_fault(LeftOutFor::kCorruption));
  all.set(1, 6, kOther);
  EXPECT_EQ(all.decision(3), "6 equivocation?");
}

TEST(Account, WhoDiffersFromMoreThanTheFaultyIsFaultyItself) {
  AllAccounts all(5);
  for (const size_t of : {0, 1, 2}) all.set(4, of, kOther);
  EXPECT_EQ(all.decision(2), "4 disagreement");
  AllAccounts fewer(5);
  for (const size_t of : {0, 1}) fewer.set(4, of, kOther);
  EXPECT_EQ(fewer.decision(2), "0 equivocation?, 1 equivocation?");
}

// Two are faulty for all; one more is one too many for an honest rank.
TEST(Account, KnownFaultsLeaveLiarsFewerToAccuse) {
  AllAccounts all(7);
  for (size_t by = 0; by < 7; ++by)
    for (const size_t of : {5, 6})
      if (by != of) all.set(by, of, kSilent);
  for (const size_t of : {0, 1}) all.set(4, of, kOther);
  EXPECT_EQ(all.decision(3), "4 disagreement, 5 silence, 6 silence");
}

TEST(Account, MoreFaultsThanAreToleratedNameTheFaultyAlone) {
  AllAccounts all(5);
  for (size_t by = 0; by < 5; ++by)
    for (const size_t of : {0, 1, 2})
      if (by != of) all.set(by, of, account_of_fault(LeftOutFor::kCorruption));
  EXPECT_EQ(all.decision(2), "0 corruption, 1 corruption, 2 corruption");
}

TEST(Account, RulesWithoutKnownFaultsTolerateFewer) {
  const auto text = [](const char* rule, size_t excused) {
    return make_combine(rule, excused).value().canonical;
  };
  EXPECT_EQ(text("trimmed_mean:f=2", 1), "trimmed_mean:f=1");
  EXPECT_EQ(text("trimmed_mean:f=2", 3), "trimmed_mean:f=0");
  EXPECT_EQ(text("krum:f=2,m=3", 1), "krum:f=1,m=3");
  EXPECT_EQ(text("median", 2), "median");
  EXPECT_EQ(text("bucketing:s=2 then nnm:f=2 then mda:f=2", 1),
            "bucketing:s=2 then nnm:f=1 then mda:f=1");
  const auto tolerated = [](const char* rule, size_t ranks) {
    return make_combine(rule).value().rule->tolerates(ranks);
  };
  EXPECT_EQ(tolerated("mean", 9), 0u);
  EXPECT_EQ(tolerated("median", 9), 4u);
  EXPECT_EQ(tolerated("geometric_median", 8), 3u);
  EXPECT_EQ(tolerated("krum:f=2", 9), 2u);
  EXPECT_EQ(tolerated("nnm:f=1 then median", 9), 1u);
  EXPECT_EQ(tolerated("bucketing:s=3 then median", 9), 1u);
  EXPECT_EQ(tolerated("clip then mean", 9), 0u);
}

}  // namespace
}  // namespace thinwire
