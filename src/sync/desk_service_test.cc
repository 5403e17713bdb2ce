// Tests of the desk on rank 0 with a worker that the test plays.
// SPDX-License-Identifier: Apache-2.0
#include "sync/desk_service.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <optional>
#include <thread>
#include <vector>

#include "sync/pace.h"

namespace thinwire {
namespace {

using namespace std::chrono_literals;

// A worker that came to a round waits for the others, which may take three deadlines. One that came
// too late, and was told so, is given up as soon as any other silent one.
TEST(DeskService, AWorkerThatCameTooLateToARoundIsNotWaitedForAsIfItWereInIt) {
  std::atomic<bool> held{false};
  run_local(2, [&](Group& group) {
    group.set_deadline(2s);
    std::unique_ptr<Group> channel = group.split(0);
    Group& line = *channel;
    if (group.rank() == 1) {
      const DeskMessage came{static_cast<uint64_t>(DeskWord::kCame), 1};
      while (!held) std::this_thread::sleep_for(1ms);
      line.wait(line.send(std::as_bytes(std::span(came)), 0, kDeskTag));
      for (const auto kind :
           {DeskNote::Kind::kCalled, DeskNote::Kind::kClosed, DeskNote::Kind::kLost}) {
        std::vector<std::byte> note(note_size(2));
        line.set_deadline(60s);
        line.wait(line.receive(note, 0, kNoteTag));
        EXPECT_EQ(read_note(note, 1)->kind, kind);
      }
      group.barrier();
      return;
    }
    DeskService service(std::move(channel), RoundDesk(2, 1, 10ms, 1800ms),
                        /*survives_losses=*/true);
    service.tell(DeskWord::kStepped, 0);
    service.tell(DeskWord::kStepped, 0);
    EXPECT_EQ(service.take(true)->kind, DeskNote::Kind::kCalled);
    service.tell(DeskWord::kCame, 1);
    EXPECT_EQ(service.take(true)->kind, DeskNote::Kind::kMembers);
    held = true;
    EXPECT_EQ(service.take(true)->kind, DeskNote::Kind::kLost);
    ASSERT_EQ(service.lost().size(), 1u);
    EXPECT_EQ(service.lost()[0].rank, 1);
    EXPECT_EQ(service.lost()[0].why, "said nothing for 1800 ms");
    group.barrier();
  });
}

TEST(DeskService, OthersGoOnWhileAWorkerThatFailedHasNotSaidWhy) {
  run_local(2, [&](Group& group) {
    group.set_deadline(1s);
    std::unique_ptr<Group> channel = group.split(0);
    if (group.rank() == 1) {
      const DeskMessage failed{static_cast<uint64_t>(DeskWord::kFailed), 0};
      channel->wait(channel->send(std::as_bytes(std::span(failed)), 0, kDeskTag));
    } else {
      DeskService service(std::move(channel), RoundDesk(2, 1, 10ms, 900ms),
                          /*survives_losses=*/true);
      std::this_thread::sleep_for(100ms);  // it has heard of the failure
      service.tell(DeskWord::kStepped, 0);
      service.tell(DeskWord::kStepped, 0);
      EXPECT_EQ(service.take(true)->kind, DeskNote::Kind::kCalled);
      EXPECT_TRUE(service.lost().empty());
      EXPECT_EQ(service.take(true)->kind, DeskNote::Kind::kLost);
      ASSERT_EQ(service.lost().size(), 1u);
      EXPECT_EQ(service.lost()[0].why, "it failed, and did not say why");
    }
    group.set_deadline(60s);
    group.barrier();
  });
}

// A worker that hangs receives nothing, so that what it is told stays on its way for ever.
TEST(DeskService, TheEndDoesNotWaitForAWorkerThatWasGivenUp) {
  std::atomic<bool> over{false};
  run_local(3, [&](Group& group) {
    group.set_deadline(1s);
    std::unique_ptr<Group> channel = group.split(0);
    Group& line = *channel;
    if (group.rank() == 2) {
      while (!over) std::this_thread::sleep_for(1ms);
    } else if (group.rank() == 1) {
      line.set_deadline(60s);
      const DeskMessage left{static_cast<uint64_t>(DeskWord::kLeft), 0};
      line.wait(line.send(std::as_bytes(std::span(left)), 0, kDeskTag));
      for (auto kind = DeskNote::Kind::kAlive; kind != DeskNote::Kind::kEnd;) {
        std::vector<std::byte> note(note_size(3));
        line.wait(line.receive(note, 0, kNoteTag));
        kind = read_note(note, 1)->kind;
      }
    } else {
      DeskService service(std::move(channel), RoundDesk(3, 1, 10ms, 900ms),
                          /*survives_losses=*/true);
      service.tell(DeskWord::kLeft, 0);
      std::optional<DeskNote> note;
      for (int look = 0; look < 30'000 && (!note || note->kind != DeskNote::Kind::kEnd); ++look) {
        if (const auto next = service.take(false)) note = next;
        std::this_thread::sleep_for(1ms);
      }
      over = true;
      ASSERT_TRUE(note.has_value());
      EXPECT_EQ(note->kind, DeskNote::Kind::kEnd);
    }
    group.set_deadline(60s);
    group.barrier();
  });
}

// The loss of a worker may be survived, and a message that makes no sense may not: take must not
// throw the one as the other.
TEST(DeskService, AnErrorThatEndsItKeepsItsCode) {
  run_local(2, [](Group& group) {
    std::unique_ptr<Group> channel = group.split(0);
    if (group.rank() == 1) {
      const DeskMessage nonsense{99, 0};
      channel->wait(channel->send(std::as_bytes(std::span(nonsense)), 0, kDeskTag));
      std::vector<std::byte> note(note_size(2));
      EXPECT_THROW(channel->wait(channel->receive(note, 0, kNoteTag)), Error);
      return;
    }
    DeskService service(std::move(channel), RoundDesk(2, 1, 10ms, 1800ms),
                        /*survives_losses=*/true);
    try {
      service.take(true);
      FAIL() << "took what is no word";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kCorrupt);
      EXPECT_STREQ(error.what(), "desk: rank 1 says what is no word");
    }
  });
}

TEST(DeskService, WhoLeftWaitsAsLongAsOthersGoOn) {
  run_local(2, [](Group& group) {
    group.set_deadline(300ms);
    const auto pace = make_counted_pace(group, 1000, 10ms);
    if (group.rank() == 0) std::this_thread::sleep_for(2s);  // more than four deadlines
    EXPECT_EQ(pace->leave(), (std::vector<int>{0, 1}));
    group.set_deadline(60s);
    group.barrier();
  });
}

}  // namespace
}  // namespace thinwire
