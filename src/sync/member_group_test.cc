// Tests of abandoned rounds: every waiting worker hears of the loss, and later rounds take no
// message of earlier ones.
// SPDX-License-Identifier: Apache-2.0
#include "sync/member_group.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>

namespace thinwire {
namespace {

using namespace std::chrono_literals;
using Message = std::array<std::byte, 100>;  // too long to be there whole or not at all

constexpr uint64_t kSameTags = 1000;  // rounds later
constexpr int kTag = 30001;           // of a collective

Message message_of(int value) {
  Message message;
  message.fill(std::byte(value));
  return message;
}

// Two ranks on one thread: posts meet without anybody waiting.
class AbandonedRound : public ::testing::Test {
 protected:
  MemberGroup round(size_t rank, uint64_t number) {
    return {*whole_[rank], {0, 1}, number, &salvage_[rank]};
  }
  void expect_delivery(uint64_t number, int value) {
    MemberGroup zero = round(0, number), one = round(1, number);
    Message in{};
    const Message out = message_of(value);
    const auto receive = one.receive(in, 0, kTag);
    const auto send = zero.send(out, 1, kTag);
    EXPECT_TRUE(receive->done());
    EXPECT_TRUE(send->done());
    EXPECT_EQ(in, out);
  }

  std::vector<std::unique_ptr<Group>> whole_ = make_local_groups(2);
  std::vector<int> lost_;  // as rank 0 has heard
  Salvage salvage_[2] = {Salvage([this](std::span<const int> ranks) {
                           for (const int rank : lost_)
                             if (std::find(ranks.begin(), ranks.end(), rank) != ranks.end())
                               return true;
                           return false;
                         }),
                         Salvage(nullptr)};
};

TEST_F(AbandonedRound, EndsForWhoHearsOfALoss) {
  MemberGroup zero = round(0, 1);
  Message in{};
  const auto receive = zero.receive(in, 1, kTag);
  EXPECT_FALSE(receive->done());
  lost_ = {7};
  EXPECT_FALSE(receive->done());  // of another round
  lost_ = {7, 1};
  EXPECT_THAT([&] { receive->done(); },
              ::testing::ThrowsMessage<Error>(::testing::HasSubstr(
                  "a worker of round 1 is lost; no end to the receive of 108 bytes from rank 1")));
}

TEST_F(AbandonedRound, LeavesSendsThatAreNoPartOfALaterRound) {
  {
    const Message gone = message_of(1);
    MemberGroup zero = round(0, 1);
    zero.send(gone, 1, kTag).reset();
  }
  expect_delivery(1 + kSameTags, 2);
  expect_delivery(1 + 2 * kSameTags, 3);
}

TEST_F(AbandonedRound, LeavesReceivesThatTakeNothingOfALaterRound) {
  {
    MemberGroup one = round(1, 1);
    Message gone{};
    one.receive(gone, 0, kTag).reset();
  }
  salvage_[1].sweep(2);  // it may still be filled by a slow sender
  for (uint64_t number = 2; number < 4; ++number) expect_delivery(number, 4);
  salvage_[1].sweep(1 + kSameTags);
  expect_delivery(1 + kSameTags, 5);
}

// A receive that its sender may fill until the last moment.
class LateReceive final : public Transfer {
 public:
  explicit LateReceive(std::span<std::byte> out) : out_(out) {}
  ~LateReceive() override { out_.back() = std::byte{7}; }
  bool done() override { return false; }
  std::string describe() const override { return "late receive"; }

 private:
  std::span<std::byte> out_;
};

// A later one takes the place of the one that goes. So much memory goes back to the system when it
// is freed, and may then not be written to.
TEST_F(AbandonedRound, MemoryOutlivesReceivesIntoIt) {
  for (const uint64_t number : {uint64_t{1}, 2 * kSameTags}) {
    std::vector<std::byte> bytes(size_t{40} << 20);
    auto transfer = std::make_unique<LateReceive>(bytes);
    salvage_[0].keep({.bytes = std::move(bytes),
                      .transfer = std::move(transfer),
                      .peer = 1,
                      .is_send = false,
                      .round = number});
  }
  salvage_[0].sweep(1 + kSameTags);
}

TEST_F(AbandonedRound, CountsTheNumbersOfMessages) {
  MemberGroup zero = round(0, 3), one = round(1, 3);
  const Message out = message_of(6);
  Message in{};
  const auto send = zero.send(out, 1, kTag);
  const auto receive = one.receive(in, 0, kTag);
  EXPECT_EQ(zero.bytes_sent(), 108u);
  EXPECT_EQ(one.bytes_received(), 108u);
}

}  // namespace
}  // namespace thinwire
