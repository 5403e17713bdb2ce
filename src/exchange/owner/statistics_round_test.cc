// Tests of statistics on their way: damaged ones, old ones, and those that never come.
// SPDX-License-Identifier: Apache-2.0
#include "exchange/owner/statistics_round.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <string>
#include <utility>

#include "comm/sealed_words.h"
#include "exchange/step/message_tags.h"
#include "exchange/testing/exchange_testing.h"
#include "exchange/testing/lost_rank.h"
#include "exchange/testing/tampering_group.h"

namespace thinwire::testing {
namespace {

using ::testing::HasSubstr;
using namespace std::chrono_literals;

constexpr int kRanks = 3;
constexpr size_t kSize = 8 * kRanks + 8;  // of the message of cge

const ExchangeOptions kOptions{
    .codec = "int8", .method = "scatter-reduce", .combine = "cge:f=1", .bucket_bytes = 400};

TEST(StatisticsRound, EveryRankSendsOneMessageToEachOther) {
  for (const std::string method : {"scatter-reduce", "gather"})
    run_local(kRanks, [&](Group& group) {
      int messages = 0;
      TamperingGroup watching(group, [&](int, int tag, std::span<std::byte> message) {
        if (tag != kStatisticsTag) return;
        ++messages;
        EXPECT_EQ(message.size(), kSize);
      });
      ExchangeOptions options = kOptions;
      options.method = method;
      Side side(watching, small_model(), options);
      for (uint64_t step = 0; step < 3; ++step) EXPECT_FALSE(side.step(step).skipped);
      EXPECT_EQ(messages, method == "gather" ? 0 : 3 * (kRanks - 1));
    });
}

// Bits of a number and of the seal.
TEST(StatisticsRound, ADamagedMessageSkipsTheStepAndNamesItsSender) {
  for (const size_t at : {size_t{0}, size_t{7}, size_t{12}, kSize - 1})
    run_local(kRanks, [&](Group& group) {
      bool armed = false;
      TamperingGroup tampering(group, [&](int from, int tag, std::span<std::byte> message) {
        if (group.rank() == 2 && from == 0 && tag == kStatisticsTag && std::exchange(armed, false))
          message[at] ^= std::byte{1};
      });
      Side side(tampering, small_model(), kOptions), clean(group, small_model(), kOptions);
      side.step(0);
      clean.step(0);
      const StateArrays before = side.store().save();
      armed = true;
      const StepReport report = side.step(1);
      EXPECT_TRUE(report.skipped) << "byte " << at;
      EXPECT_EQ(report.fault.code, ErrorCode::kCorrupt);
      EXPECT_EQ(report.fault.rank, 0);
      EXPECT_TRUE(same_state(side.store().save(), before));
      clean.exchange().set_step(2);
      clean.step(2);
      EXPECT_FALSE(side.step(2).skipped);
      EXPECT_TRUE(same_bits(side.values, clean.values));
    });
}

TEST(StatisticsRound, AMessageOfAnEarlierStepIsDamaged) {
  run_local(kRanks, [&](Group& group) {
    std::vector<std::byte> kept;
    TamperingGroup tampering(group, [&](int from, int tag, std::span<std::byte> message) {
      if (tag != kStatisticsTag || group.rank() != 0 || from != 1) return;
      if (kept.empty())
        kept.assign(message.begin(), message.end());
      else
        std::copy(kept.begin(), kept.end(), message.begin());
    });
    Side side(tampering, small_model(), kOptions);
    EXPECT_FALSE(side.step(0).skipped);
    const StepReport report = side.step(1);
    EXPECT_TRUE(report.skipped);
    EXPECT_EQ(report.fault.code, ErrorCode::kCorrupt);
    EXPECT_EQ(report.fault.rank, 1);
  });
}

// A hostile owner seals what it likes.
TEST(StatisticsRound, NumbersThatAreNoneAreTaken) {
  run_local(kRanks, [&](Group& group) {
    TamperingGroup tampering(group, [&](int from, int tag, std::span<std::byte> message) {
      if (tag != kStatisticsTag) return;
      const auto words = std::span(reinterpret_cast<uint64_t*>(message.data()), kRanks + 1);
      std::fill_n(words.begin(), kRanks, ~uint64_t{0});  // NaN
      words.back() = seal_of(words.first(kRanks), 0, from);
    });
    Side side(tampering, small_model(), kOptions);
    EXPECT_FALSE(side.step(0).skipped);
  });
}

// Ten times a tenth, each rounded, of the largest float.
TEST(StatisticsRound, RoundedWeightsMayOverflow) {
  for (const std::string method : {"scatter-reduce", "gather"})
    run_local(10, [&](Group& group) {
      Side side(group, {{"w", {20}, TensorKind::kLinear}},
                {.codec = "fp32", .method = method, .combine = "cge:f=0"});
      side.values = {Values(20, std::numeric_limits<float>::max())};
      side.start(0);
      const StepReport report = side.exchange().finish();
      EXPECT_TRUE(report.skipped) << method;
      EXPECT_EQ(report.fault.code, ErrorCode::kNonFinite);
      EXPECT_EQ(report.fault.rank, -1);
    });
}

TEST(StatisticsRound, WhoStallsIsNamedAtTheDeadline) {
  LostRank lost(1);
  const auto messages = lost.told(kRanks, [&](Group& group) {
    group.set_deadline(kLongDeadline);
    TamperingGroup plain(group, [](int, int, std::span<std::byte>) {});
    Side side(plain, small_model(), kOptions);
    side.step(0);
    plain.last_split().set_deadline(1s);
    if (group.rank() == 1) {
      lost.stall(kRanks - 1);
      EXPECT_THROW(side.step(1), Error);
      return;
    }
    side.step(1);
  });
  EXPECT_THAT(messages, ::testing::SizeIs(kRanks - 1));
  EXPECT_THAT(messages, ::testing::Each(HasSubstr("rank 1")));
}

// Sends no statistics, and says that it did.
class WithholdingGroup final : public Group {
 public:
  explicit WithholdingGroup(std::unique_ptr<Group> inner) : inner_(std::move(inner)) {
    set_deadline(inner_->deadline());
  }
  int rank() const noexcept override { return inner_->rank(); }
  int size() const noexcept override { return inner_->size(); }
  std::unique_ptr<Transfer> send(std::span<const std::byte> buffer, int to, int tag) override {
    return tag == kStatisticsTag ? std::make_unique<Sent>() : inner_->send(buffer, to, tag);
  }
  std::unique_ptr<Transfer> receive(std::span<std::byte> buffer, int from, int tag) override {
    return inner_->receive(buffer, from, tag);
  }
  std::unique_ptr<Group> split(int colour) override {
    return std::make_unique<WithholdingGroup>(inner_->split(colour));
  }
  void abort(std::string_view reason) noexcept override { inner_->abort(reason); }
  void library_all_reduce(std::span<float> values) override { inner_->library_all_reduce(values); }

 private:
  struct Sent final : public Transfer {
    bool done() override { return true; }
    std::string describe() const override { return "nothing"; }
  };

  std::unique_ptr<Group> inner_;
};

TEST(StatisticsRound, WhoSendsNoStatisticsIsNamedAtTheDeadline) {
  const auto messages = LostRank(1).told(kRanks, [](Group& group) {
    if (group.rank() == 1) {
      group.set_deadline(kLongDeadline);
      WithholdingGroup withholding(group.split(0));
      Side(withholding, small_model(), kOptions).step(0);
      return;
    }
    const auto part = group.split(0);
    part->set_deadline(2s);
    Side(*part, small_model(), kOptions).step(0);
  });
  EXPECT_THAT(messages, ::testing::SizeIs(kRanks - 1));
  EXPECT_THAT(messages,
              ::testing::Contains(HasSubstr("nothing moved for 2000 ms: receive of " +
                                            std::to_string(kSize) + " bytes from rank 1")));
}

}  // namespace
}  // namespace thinwire::testing
