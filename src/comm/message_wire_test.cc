// MessageWire: what is dropped, what a receive that failed leaves to the next, and lost ranks.
// SPDX-License-Identifier: Apache-2.0
#include "thinwire/message_wire.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "thinwire/group.h"
#include "thinwire/status.h"

namespace thinwire {
namespace {

using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr milliseconds kNow{0}, kSoon{5000};
constexpr size_t kLimit = 100;

// Wires between ranks that this thread plays in turn.
struct Wires {
  explicit Wires(int size) {
    for (auto& group : make_local_groups(size))
      of.push_back(std::make_unique<MessageWire>(std::move(group)));
  }

  // Rank `from` sends to rank 1, if nothing else is said. The text stays where it is.
  void send(const char* text, const MessageOrder& order, int from = 0, int to = 1, int tag = 3) {
    of[static_cast<size_t>(from)]->send(std::as_bytes(std::span(text, std::string(text).size())),
                                        order.step + 10, order, to, tag);
  }

  // What rank 1 receives from rank 0.
  std::string receive(const MessageOrder& expected, milliseconds deadline = kSoon, int tag = 3) {
    const WireMessage message = of[1]->receive(kLimit, 0, tag, expected, deadline);
    EXPECT_EQ(message.note, message.order.step + 10);
    return {reinterpret_cast<const char*>(message.bytes.get()), message.size};
  }

  std::vector<std::unique_ptr<MessageWire>> of;
};

template <typename Work>
Error error_of(const Work& work) {
  try {
    work();
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "no error";
  return {ErrorCode::kContract, ""};
}

TEST(MessageWire, BringsMessagesOfAnyLengthInTheOrderOfTheirTag) {
  Wires wires(2);
  wires.send("one", {});
  wires.send("", {.step = 1});
  wires.send("other tag", {}, 0, 1, 4);
  EXPECT_EQ(wires.receive({}, kSoon, 4), "other tag");
  EXPECT_EQ(wires.receive({}), "one");
  EXPECT_EQ(wires.receive({.step = 1}), "");
}

TEST(MessageWire, DropsWhatIsEarlierThanExpected) {
  Wires wires(2);
  for (const MessageOrder& early :
       {MessageOrder{.step = 9}, MessageOrder{.generation = 1, .step = 2, .turn = 9},
        MessageOrder{.generation = 1, .step = 3, .turn = 1}})
    wires.send("early", early);
  wires.send("exact", {.generation = 1, .step = 3, .turn = 2});
  wires.send("later", {.generation = 2});
  EXPECT_EQ(wires.receive({.generation = 1, .step = 3, .turn = 2}), "exact");
  EXPECT_EQ(wires.receive({.generation = 1, .step = 4}), "later");
}

TEST(MessageWire, AfterATimeoutTheNextReceiveGoesOn) {
  Wires wires(2);
  EXPECT_EQ(error_of([&] { wires.receive({}, kNow); }).code(), ErrorCode::kTimeout);
  wires.send("step 0", {});
  const Error late = error_of([&] { wires.receive({.step = 1}, milliseconds(50)); });
  EXPECT_EQ(late.code(), ErrorCode::kTimeout);
  EXPECT_THAT(late.what(), AllOf(HasSubstr("50 ms"), HasSubstr("1 that came meanwhile")));
  wires.send("step 1", {.step = 1});
  EXPECT_EQ(wires.receive({.step = 1}), "step 1");
}

TEST(MessageWire, AfterATimeoutBetweenHeadAndMessageToo) {
  auto groups = make_local_groups(2);
  MessageWire wire(std::move(groups[1]));
  const uint64_t head[] = {4, 7, 0, 0, 0};
  const auto first = groups[0]->send(std::as_bytes(std::span(head)), 1, 3);
  EXPECT_EQ(error_of([&] { wire.receive(kLimit, 0, 3, {}, milliseconds(50)); }).code(),
            ErrorCode::kTimeout);
  const auto second = groups[0]->send(std::as_bytes(std::span("abc")), 1, 3);
  const WireMessage message = wire.receive(kLimit, 0, 3, {}, kSoon);
  EXPECT_EQ(message.note, 7u);
  EXPECT_STREQ(reinterpret_cast<const char*>(message.bytes.get()), "abc");
}

TEST(MessageWire, RefusesMoreBytesThanAMessageCanHave) {
  auto groups = make_local_groups(2);
  MessageWire wire(std::move(groups[1]));
  const uint64_t head[] = {uint64_t{1} << 60, 0, 0, 0, 0};
  const auto sent = groups[0]->send(std::as_bytes(std::span(head)), 1, 3);
  for (int time = 0; time < 2; ++time) {
    const Error error = error_of([&] { wire.receive(kLimit, 0, 3, {}, kSoon); });
    EXPECT_EQ(error.code(), ErrorCode::kCorrupt);
    EXPECT_THAT(error.what(), AllOf(HasSubstr("rank 0"), HasSubstr("more than 100")));
  }
}

// One message has arrived, one is under way, and one can never arrive.
TEST(MessageWire, ALostRankIsAnErrorOfWhatIsSentToIt) {
  Wires wires(3);
  wires.send("arrived", {});
  EXPECT_EQ(wires.receive({}), "arrived");
  wires.send("under way", {.step = 1});
  wires.send("lost", {}, 0, 2);
  wires.of[2].reset();
  for (int time = 0; time < 2; ++time) {
    wires.send("on", {.step = 2});
    const Error error = error_of([&] { wires.send("lost, too", {}, 0, 2); });
    EXPECT_EQ(error.code(), ErrorCode::kPeerLost);
    EXPECT_THAT(error.what(), HasSubstr("rank 2"));
  }
  EXPECT_EQ(wires.receive({.step = 1}), "under way");
  EXPECT_EQ(wires.receive({.step = 2}), "on");
}

}  // namespace
}  // namespace thinwire
