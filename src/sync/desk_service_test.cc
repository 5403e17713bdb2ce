// Tests of the desk on rank 0 with a worker that the test plays.
// SPDX-License-Identifier: Apache-2.0
#include "sync/desk_service.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

namespace thinwire {
namespace {

using namespace std::chrono_literals;

// A worker that came to a round waits for the others, which may take three deadlines. One that came too
// late, and was told so, is given up as soon as any other silent one.
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
      for (const auto kind : {DeskNote::kCalled, DeskNote::kClosed, DeskNote::kLost}) {
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
    EXPECT_EQ(service.take(true)->kind, DeskNote::kCalled);
    service.tell(DeskWord::kCame, 1);
    EXPECT_EQ(service.take(true)->kind, DeskNote::kMembers);
    held = true;
    EXPECT_EQ(service.take(true)->kind, DeskNote::kLost);
    ASSERT_EQ(service.lost().size(), 1u);
    EXPECT_EQ(service.lost()[0].rank, 1);
    EXPECT_EQ(service.lost()[0].why, "said nothing for 1800 ms");
    group.barrier();
  });
}

}  // namespace
}  // namespace thinwire
