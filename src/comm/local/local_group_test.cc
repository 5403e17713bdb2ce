// Ranks that are threads: what happens when one throws, leaves, aborts or gives up.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <latch>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <thread>

#include "thinwire/group.h"

namespace thinwire {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;
using testing::AllOf;
using testing::HasSubstr;

using Bytes = std::vector<std::byte>;

// What each rank's body threw, run as run_local runs it.
struct Outcome {
  std::vector<std::optional<Error>> errors;
  std::string rethrown;
  steady_clock::duration took{};
};

Outcome outcome(int size, const std::function<void(Group&)>& body) {
  Outcome out{.errors = std::vector<std::optional<Error>>(static_cast<size_t>(size)),
              .rethrown = ""};
  std::mutex mutex;
  const auto begin = steady_clock::now();
  try {
    run_local(size, [&](Group& group) {
      try {
        body(group);
      } catch (const Error& error) {
        const std::lock_guard lock(mutex);
        out.errors[static_cast<size_t>(group.rank())] = error;
        throw;
      }
    });
  } catch (const std::exception& error) {
    out.rethrown = error.what();
  }
  out.took = steady_clock::now() - begin;
  return out;
}

class LocalFaults : public testing::TestWithParam<int> {
 protected:
  int n() const { return GetParam(); }
  int culprit() const { return n() / 2; }
};

INSTANTIATE_TEST_SUITE_P(Ranks, LocalFaults, testing::Range(2, 10));

// The default deadline of a minute would be noticed.
constexpr auto kSoon = std::chrono::seconds(20);

TEST_P(LocalFaults, AThrowingRankFailsTheOthersByName) {
  const auto out = outcome(n(), [&](Group& group) {
    group.barrier();
    if (group.rank() == culprit()) throw std::runtime_error("the disk is full");
    for (;;) group.barrier();
  });
  EXPECT_EQ(out.rethrown, "the disk is full");
  EXPECT_LT(out.took, kSoon);
  const auto name = "rank " + std::to_string(culprit()) + " failed: the disk is full";
  for (int r = 0; r < n(); ++r) {
    const auto& error = out.errors[static_cast<size_t>(r)];
    ASSERT_EQ(error.has_value(), r != culprit());
    if (!error) continue;
    EXPECT_EQ(error->code(), ErrorCode::kPeerLost);
    EXPECT_THAT(error->what(), HasSubstr(name));
  }
}

TEST_P(LocalFaults, AThrowOfAnyTypeCounts) {
  EXPECT_THROW(run_local(n(),
                         [&](Group& group) {
                           if (group.rank() == culprit()) throw 42;
                           group.barrier();
                         }),
               int);
}

TEST_P(LocalFaults, ARankThatReturnsEarlyIsMissed) {
  const auto out = outcome(n(), [&](Group& group) {
    group.barrier();
    if (group.rank() == culprit()) return;
    for (;;) group.barrier();
  });
  EXPECT_LT(out.took, kSoon);
  const auto name = "rank " + std::to_string(culprit()) + " left the group";
  EXPECT_THAT(out.rethrown, HasSubstr(name));
  for (int r = 0; r < n(); ++r)
    if (r != culprit()) {
      EXPECT_THAT(out.errors[static_cast<size_t>(r)]->what(), HasSubstr(name));
    }
}

// Rank 0 waits for 1, 1 for 2, and so on; the last leaves. All hear of the last, not of each other.
TEST_P(LocalFaults, TheFirstLossIsToldDownTheChain) {
  auto groups = make_local_groups(n());
  std::vector<std::string> heard(groups.size());
  {
    std::vector<std::jthread> threads;
    for (size_t r = 0; r < groups.size(); ++r) {
      threads.emplace_back([&, r] {
        const auto group = std::move(groups[r]);
        Bytes in(4);
        if (r + 1 == heard.size()) return;
        try {
          group->wait(group->receive(in, static_cast<int>(r) + 1, 0));
        } catch (const Error& error) {
          heard[r] = error.what();
        }
      });
    }
  }
  for (size_t r = 0; r + 1 < heard.size(); ++r)
    EXPECT_EQ(heard[r], "local group: rank " + std::to_string(n() - 1) +
                            " left the group; no end to the receive of 4 bytes from rank " +
                            std::to_string(r + 1) + ", tag 0");
}

TEST_P(LocalFaults, ALateRankIsNamedToAll) {
  std::atomic<int> others{n() - 1};
  const auto out = outcome(n(), [&](Group& group) {
    if (group.rank() == culprit()) {
      while (others > 0) std::this_thread::sleep_for(milliseconds(1));
      return;
    }
    group.set_deadline(milliseconds(50));
    Bytes buffer(8);
    try {
      group.broadcast(buffer, culprit());
    } catch (...) {
      --others;
      throw;
    }
  });
  EXPECT_LT(out.took, kSoon);
  EXPECT_THAT(out.rethrown, HasSubstr("within the deadline of 50 ms"));
}

// An abort reaches the parent, other splits, and waits that begin later; the first one counts.
TEST_P(LocalFaults, AnAbortReachesTheWholeFamily) {
  std::atomic<int> told{0};
  std::latch ready(n());  // a barrier of the group's would still be under way for some
  const auto out = outcome(n(), [&](Group& group) {
    const auto one = group.split(0);
    const auto two = group.split(0);
    const auto sub = one->split(0);
    ready.arrive_and_wait();
    Bytes in(1);
    if (group.rank() == culprit()) {
      sub->abort("no reason");
      sub->abort("another");
    }
    for (Group* g : {two.get(), one.get(), sub.get(), &group}) {
      try {
        g->wait(g->receive(in, (g->rank() + 1) % g->size(), 0));
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::kPeerLost);
        EXPECT_THAT(error.what(),
                    HasSubstr("rank " + std::to_string(culprit()) + " failed: no reason;"));
        ++told;
      }
    }
  });
  EXPECT_EQ(told, 4 * n());
  EXPECT_EQ(out.rethrown, "");
}

// Sub-groups number their ranks anew; errors use the numbers that a user started with.
TEST_P(LocalFaults, ErrorsInASubGroupNameTheRankOfTheWhole) {
  std::latch ready(n());  // no split is still under way for some
  const auto out = outcome(n(), [&](Group& group) {
    const auto part = group.split(group.rank() == 0 ? 0 : 1);
    ready.arrive_and_wait();
    if (group.rank() == n() - 1) throw std::runtime_error("boom");
    Bytes in(4);
    if (part->size() > 1) part->wait(part->receive(in, part->size() - 1, 0));
  });
  EXPECT_EQ(out.rethrown, "boom");
  for (int r = 1; r + 1 < n(); ++r)
    EXPECT_THAT(out.errors[static_cast<size_t>(r)]->what(),
                AllOf(HasSubstr("rank " + std::to_string(n() - 1)),
                      HasSubstr("from rank " + std::to_string(n() - 1))));
}

// Its sub-group leaves while it unwinds, which the others see and report before its body has ended.
TEST_P(LocalFaults, TheErrorThatCameFirstIsRethrownNotItsEcho) {
  struct SlowEnd {
    ~SlowEnd() { std::this_thread::sleep_for(milliseconds(30)); }
  };
  const auto out = outcome(n(), [&](Group& group) {
    const SlowEnd slow;
    const auto part = group.split(0);
    if (group.rank() == culprit()) throw std::runtime_error("the cause");
    for (;;) part->barrier();
  });
  EXPECT_EQ(out.rethrown, "the cause");
}

TEST_P(LocalFaults, AFailedWaitIsWhatTheOthersHear) {
  const auto out = outcome(n(), [&](Group& group) {
    const Bytes seven(7);
    Bytes eight(8);
    if (group.rank() == 0) group.wait(group.send(seven, culprit(), 1));
    if (group.rank() == culprit()) group.wait(group.receive(eight, 0, 1));
    for (;;) group.barrier();
  });
  const std::string what = "receive of 8 bytes from rank 0, tag 1: the message has 7";
  EXPECT_EQ(out.rethrown, "local group: " + what);
  for (const auto& error : out.errors) EXPECT_THAT(error->what(), HasSubstr(what));
}

TEST(LocalGroup, DeadlinesAreFromZeroToAYear) {
  run_local(1, [](Group& group) {
    group.set_deadline(std::chrono::milliseconds::max());
    EXPECT_EQ(group.deadline(), std::chrono::hours(24 * 365));
    group.set_deadline(std::chrono::milliseconds(-1));
    EXPECT_EQ(group.deadline().count(), 0);
  });
}

TEST(LocalGroup, NeedsARank) {
  EXPECT_THROW(make_local_groups(0), Error);
  EXPECT_THROW(run_local(-1, [](Group&) {}), Error);
}

TEST(LocalGroup, SendsToOneWhoLeftFailAndWhatWasSentBeforeArrives) {
  auto groups = make_local_groups(2);
  const Bytes out(3, std::byte{7});
  Bytes in(3);
  auto send = groups[0]->send(out, 1, 0);
  groups[0].reset();
  groups[1]->wait(groups[1]->receive(in, 0, 0));
  EXPECT_EQ(in, out);
  EXPECT_TRUE(send->done());
  EXPECT_THAT(
      [&] { groups[1]->wait(groups[1]->send(out, 0, 0)); },
      testing::ThrowsMessage<Error>(HasSubstr("rank 0 left the group; no end to the send")));
}

// A given-up side takes no part: the buffer is untouched and the message goes to the next receive.
TEST(LocalGroup, AGivenUpTransferIsForgotten) {
  auto groups = make_local_groups(2);
  Bytes given_up(2, std::byte{1}), in(2, std::byte{2});
  const Bytes out(2, std::byte{3});
  groups[1]->receive(given_up, 0, 0).reset();
  groups[0]->send(Bytes(5), 1, 0).reset();
  const auto send = groups[0]->send(out, 1, 0);
  groups[1]->wait(groups[1]->receive(in, 0, 0));
  EXPECT_EQ(given_up, Bytes(2, std::byte{1}));
  EXPECT_EQ(in, out);
  EXPECT_TRUE(send->done());
}

// Zero copy: what is sent is read from the sender's own buffer when the receive comes.
TEST(LocalGroup, ReadsTheSendersBufferWhenMatched) {
  auto groups = make_local_groups(2);
  Bytes out(2, std::byte{1}), in(2);
  const auto send = groups[0]->send(out, 1, 0);
  EXPECT_FALSE(send->done());
  out[0] = std::byte{9};
  const auto receive = groups[1]->receive(in, 0, 0);
  EXPECT_TRUE(send->done());
  EXPECT_TRUE(receive->done());
  EXPECT_EQ(in[0], std::byte{9});
}

// Sleeping, not polling: a second of waiting takes next to no computing.
TEST(LocalGroup, WaitsWithoutTheCore) {
  auto groups = make_local_groups(2);
  groups[0]->set_deadline(milliseconds(300));
  Bytes in(1);
  const auto receive = groups[0]->receive(in, 1, 0);
  timespec before{}, after{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &before);
  EXPECT_THROW(groups[0]->wait(receive), Error);
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &after);
  const double seconds = static_cast<double>(after.tv_sec - before.tv_sec) +
                         1e-9 * static_cast<double>(after.tv_nsec - before.tv_nsec);
  EXPECT_LT(seconds, 0.03);
}

// Two threads meet, part and race at every point of a message's life; ThreadSanitizer looks on.
TEST(LocalGroup, GivesUpWhileTheOtherSideCopies) {
  for (int i = 0; i < 200; ++i) {
    auto groups = make_local_groups(2);
    const Bytes out(size_t{1} << 20, std::byte{5});
    Bytes in(out.size());
    std::jthread sender([&, group = groups[0].get()] {
      const auto send = group->send(out, 1, 0);
      if (i % 2 == 0) std::this_thread::yield();
    });
    auto receive = groups[1]->receive(in, 0, 0);
    if (i % 4 > 0) std::this_thread::sleep_for(std::chrono::microseconds(i));
    receive.reset();
    std::fill(in.begin(), in.end(), std::byte{0});  // ours again
    sender.join();
    EXPECT_EQ(in, Bytes(out.size()));
  }
}

}  // namespace
}  // namespace thinwire
