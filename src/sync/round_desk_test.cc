// Tests of when the desk calls rounds, and which workers take part.
// SPDX-License-Identifier: Apache-2.0
#include "sync/round_desk.h"

#include <gtest/gtest.h>

#include "sync/desk_service.h"

namespace thinwire {
namespace {

using std::chrono::milliseconds;
using Kind = DeskNote::Kind;
using Members = std::vector<bool>;

const RoundDesk::Clock::time_point kStart{};

RoundDesk patient(int ranks, uint64_t period) {
  return {ranks, period, milliseconds(0), milliseconds(1000)};
}

std::vector<std::pair<Kind, int>> told(const std::vector<DeskNote>& notes) {
  std::vector<std::pair<Kind, int>> all;
  for (const DeskNote& note : notes) all.emplace_back(note.kind, note.to);
  return all;
}
using Told = std::vector<std::pair<Kind, int>>;

TEST(RoundDesk, CallsWhenAllTogetherTookTheirSteps) {
  RoundDesk desk = patient(2, 3);
  for (int step = 0; step < 5; ++step) EXPECT_TRUE(desk.on_step(0, kStart).empty());  // alone
  EXPECT_EQ(told(desk.on_step(1, kStart)), (Told{{Kind::kCalled, 0}, {Kind::kCalled, 1}}));
}

TEST(RoundDesk, HoldsTheRoundWhenAllCame) {
  RoundDesk desk = patient(2, 1);
  desk.on_step(0, kStart);
  desk.on_step(1, kStart);
  EXPECT_TRUE(desk.on_arrival(1, 1, kStart).empty());
  const auto notes = desk.on_arrival(0, 1, kStart);
  EXPECT_EQ(told(notes), (Told{{Kind::kMembers, 0}, {Kind::kMembers, 1}}));
  EXPECT_EQ(notes[0].members, (Members{true, true}));
  EXPECT_EQ(notes[0].round, 1u);
}

// Steps that are taken while a round is open count for the next, which is not called before.
TEST(RoundDesk, CallsTheNextRoundWhenThisOneIsOver) {
  RoundDesk desk = patient(2, 1);
  for (int step = 0; step < 4; ++step) desk.on_step(0, kStart);
  desk.on_arrival(0, 1, kStart);
  const auto notes = desk.on_arrival(1, 1, kStart);
  EXPECT_EQ(
      told(notes),
      (Told{{Kind::kMembers, 0}, {Kind::kMembers, 1}, {Kind::kCalled, 0}, {Kind::kCalled, 1}}));
  EXPECT_EQ(notes[2].round, 2u);
}

TEST(RoundDesk, GoesOnWithoutTheLateWhenItsPatienceEnds) {
  RoundDesk desk(3, 1, milliseconds(50), milliseconds(1000));
  for (int rank = 0; rank < 3; ++rank) desk.on_step(rank, kStart);
  EXPECT_TRUE(desk.on_time(kStart + milliseconds(60)).empty());  // nobody came
  desk.on_arrival(0, 1, kStart);
  desk.on_arrival(2, 1, kStart);
  EXPECT_TRUE(desk.on_time(kStart + milliseconds(49)).empty());
  const auto notes = desk.on_time(kStart + milliseconds(50));
  EXPECT_EQ(told(notes), (Told{{Kind::kMembers, 0}, {Kind::kMembers, 2}}));
  EXPECT_EQ(notes[0].members, (Members{true, false, true}));
  EXPECT_EQ(told(desk.on_arrival(1, 1, kStart + milliseconds(51))), (Told{{Kind::kClosed, 1}}));
}

TEST(RoundDesk, WithoutPatienceTheLateAreNamedAtTheDeadline) {
  RoundDesk desk = patient(3, 1);
  for (int rank = 0; rank < 3; ++rank) desk.on_step(rank, kStart);
  desk.on_arrival(0, 1, kStart);
  EXPECT_TRUE(desk.on_time(kStart + milliseconds(999)).empty());
  const auto notes = desk.on_time(kStart + milliseconds(1000));
  EXPECT_EQ(told(notes), (Told{{Kind::kFailed, 0}}));
  EXPECT_EQ(notes[0].members, (Members{false, true, true}));
}

TEST(RoundDesk, WhoLeftIsNotWaitedForAndCountsForNoRound) {
  RoundDesk desk = patient(3, 2);
  for (int step = 0; step < 6; ++step) desk.on_step(step % 3, kStart);
  desk.on_arrival(0, 1, kStart);
  desk.on_arrival(1, 1, kStart);
  EXPECT_EQ(told(desk.on_leave(2, kStart)), (Told{{Kind::kMembers, 0}, {Kind::kMembers, 1}}));
  EXPECT_EQ(desk.live(), 2);
  // The second round was set for three workers, the third is for the two that are left.
  for (int step = 0; step < 5; ++step) EXPECT_TRUE(desk.on_step(0, kStart).empty());
  EXPECT_EQ(desk.on_step(1, kStart).size(), 2u);
  desk.on_arrival(0, 2, kStart);
  desk.on_arrival(1, 2, kStart);
  for (int step = 0; step < 3; ++step) EXPECT_TRUE(desk.on_step(0, kStart).empty());
  EXPECT_EQ(desk.on_step(0, kStart).size(), 2u);
}

TEST(DeskNotes, ReadAsWritten) {
  const DeskNote note{
      .kind = Kind::kMembers, .to = 1, .round = 1ull << 40, .members = {true, false}};
  std::vector<std::byte> bytes(note_size(2));
  write_note(note, bytes);
  const auto read = read_note(bytes, 1);
  ASSERT_TRUE(read);
  EXPECT_EQ(read->kind, note.kind);
  EXPECT_EQ(read->round, note.round);
  EXPECT_EQ(read->members, note.members);
  for (const size_t at : {size_t{0}, size_t{7}, size_t{16}}) {
    auto bad = bytes;
    bad[at] = std::byte{77};
    EXPECT_FALSE(read_note(bad, 1)) << at;
  }
}

}  // namespace
}  // namespace thinwire
