// Tests of workers that are threads and meet: who goes on, who is left out, who comes.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "thinwire/members.h"
#include "thinwire/survived.h"

namespace thinwire {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr std::chrono::seconds kLong{60};

std::vector<std::unique_ptr<Members>> enter(MeetingPlace& place, int count) {
  std::vector<std::unique_ptr<Members>> all;
  for (int i = 0; i < count; ++i) all.push_back(place.enter());
  return all;
}

// All of them meet at the same time; a null one does not.
std::vector<Meeting> meet(const std::vector<Members*>& members, std::chrono::milliseconds patience,
                          bool admit = false) {
  std::vector<Meeting> meetings(members.size());
  std::vector<std::jthread> threads;
  for (size_t i = 0; i < members.size(); ++i)
    threads.emplace_back([&, i] { meetings[i] = members[i]->meet(patience, admit); });
  threads.clear();
  return meetings;
}

// Whether they can use their group.
void expect_group(std::vector<Meeting>& meetings) {
  std::vector<std::jthread> threads;
  for (Meeting& meeting : meetings)
    threads.emplace_back([&] {
      meeting.group->set_deadline(kLong);
      EXPECT_EQ(meeting.group->max(static_cast<uint64_t>(meeting.group->rank())),
                static_cast<uint64_t>(meeting.group->size() - 1));
    });
}

TEST(LocalMembers, MeetInTheOrderOfTheirNumbersAndAnAbortStaysInItsGroup) {
  MeetingPlace place(3);
  auto all = enter(place, 3);
  auto first = meet({all[2].get(), all[0].get(), all[1].get()}, kLong);
  EXPECT_EQ(first[0].generation, 1u);
  EXPECT_THAT(first[0].workers, ElementsAre(0, 1, 2));
  EXPECT_THAT(first[0].newcomers, IsEmpty());
  EXPECT_EQ(first[0].group->rank(), 2);
  expect_group(first);
  first[1].group->abort("no more");
  all[0].reset();  // worker 0 is gone
  auto second = meet({all[1].get(), all[2].get()}, kLong);
  EXPECT_EQ(all[1]->rank(), 0);
  EXPECT_EQ(all[2]->rank(), 1);
  EXPECT_EQ(second[0].generation, 2u);
  EXPECT_THAT(second[0].workers, ElementsAre(1, 2));
  expect_group(second);
  EXPECT_THROW(first[0].group->barrier(), Error);
  EXPECT_EQ(all[1]->worker_of(1, 0), 0);
  EXPECT_EQ(all[1]->worker_of(2, 0), 1);
  EXPECT_EQ(all[1]->worker_of(2, 2), -1);
  EXPECT_EQ(all[1]->worker_of(9, 0), -1);
}

TEST(LocalMembers, WhoWaitsGoesOnWhenAnotherLeaves) {
  MeetingPlace place(2);
  auto all = enter(place, 2);
  meet({all[0].get(), all[1].get()}, kLong);
  std::jthread leaver([&] {
    std::this_thread::sleep_for(30ms);
    all[1].reset();
  });
  EXPECT_FALSE(all[0]->is_alone());
  const Meeting meeting = all[0]->meet(kLong, false);
  EXPECT_THAT(meeting.workers, ElementsAre(0));
  EXPECT_TRUE(all[0]->is_alone());
}

TEST(LocalMembers, WhoIsSilentIsLeftOut) {
  MeetingPlace place(2);
  auto all = enter(place, 2);
  meet({all[0].get(), all[1].get()}, kLong);
  EXPECT_THAT(all[0]->meet(50ms, false).workers, ElementsAre(0));
  EXPECT_THROW(all[1]->meet(50ms, false), SurvivedError);
}

TEST(LocalMembers, NewcomersWaitUntilAllAdmitThem) {
  MeetingPlace place(2);
  auto all = enter(place, 3);
  EXPECT_TRUE(all[2]->is_newcomer());
  Meeting of_newcomer;
  std::jthread newcomer([&] { of_newcomer = all[2]->meet(kLong, false); });
  EXPECT_EQ(meet({all[0].get(), all[1].get()}, kLong, true)[0].workers.size(), 2u)
      << "the first group is of those that begin";
  while (!all[0]->somebody_waits()) std::this_thread::sleep_for(1ms);
  EXPECT_EQ(meet({all[0].get(), all[1].get()}, kLong, false)[0].workers.size(), 2u);
  {
    std::vector<std::jthread> threads;  // one of the two does not admit
    threads.emplace_back([&] { EXPECT_EQ(all[0]->meet(kLong, true).workers.size(), 2u); });
    threads.emplace_back([&] { EXPECT_EQ(all[1]->meet(kLong, false).workers.size(), 2u); });
  }
  EXPECT_TRUE(all[2]->is_newcomer());
  auto meetings = meet({all[0].get(), all[1].get()}, kLong, true);
  newcomer.join();
  EXPECT_FALSE(all[0]->somebody_waits());
  EXPECT_FALSE(all[2]->is_newcomer());
  EXPECT_THAT(of_newcomer.workers, ElementsAre(0, 1, 2));
  EXPECT_THAT(meetings[0].newcomers, ElementsAre(2));
  meetings.push_back(std::move(of_newcomer));
  expect_group(meetings);
}

TEST(LocalMembers, ANewcomerIsToldThatNobodyIsLeft) {
  MeetingPlace place(1);
  auto all = enter(place, 2);
  all[0]->meet(kLong, false);
  std::jthread newcomer([&] { EXPECT_THROW(all[1]->meet(kLong, false), Error); });
  std::this_thread::sleep_for(20ms);
  all[0].reset();
}

TEST(LocalMembers, TheEndIsFoundByThoseThatMeetLater) {
  MeetingPlace place(2);
  auto all = enter(place, 3);
  meet({all[0].get(), all[1].get()}, kLong);
  std::jthread newcomer([&] { EXPECT_EQ(all[2]->meet(kLong, false).group, nullptr); });
  std::this_thread::sleep_for(20ms);
  all[0]->end();
  EXPECT_EQ(all[1]->meet(kLong, false).group, nullptr);
}

std::string error_of_meeting(Members& members) {
  try {
    members.meet(50ms, false);
  } catch (const AgreedError& error) {
    return error.what();
  }
  return "no such error";
}

TEST(LocalMembers, WhoIsLateAtTheFirstMeetingEndsItForAll) {
  MeetingPlace place(3);
  auto all = enter(place, 3);
  std::string of_first;
  std::jthread first([&] { of_first = error_of_meeting(*all[0]); });
  EXPECT_THAT(error_of_meeting(*all[2]), HasSubstr("all 3 workers, but 1 left"));
  first.join();
  EXPECT_THAT(of_first, HasSubstr("but 1 left or did not come in time"));
  EXPECT_EQ(error_of_meeting(*all[1]), of_first) << "the late one";
  EXPECT_EQ(all[0]->rank(), -1);
}

TEST(LocalMembers, WhoLeavesBeforeTheFirstMeetingEndsItForAll) {
  MeetingPlace place(3);
  auto all = enter(place, 3);
  std::jthread first([&] { EXPECT_THROW(all[0]->meet(kLong, false), AgreedError); });
  std::this_thread::sleep_for(20ms);
  all[1].reset();
  first.join();
  EXPECT_THAT(error_of_meeting(*all[2]), HasSubstr("but 1 left"));
}

TEST(LocalMembers, TheFirstMeetingWaitsForAllThatBegin) {
  MeetingPlace place(2);
  const auto one = place.enter();
  EXPECT_THROW(one->meet(30ms, false), Error);
  const auto other = place.enter();
  EXPECT_EQ(meet({one.get(), other.get()}, kLong)[0].workers.size(), 2u);
}

}  // namespace
}  // namespace thinwire
