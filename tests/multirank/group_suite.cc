// What every Group promises, on any number of ranks: the same bodies run on threads and under
// mpirun.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <numeric>
#include <thread>

#include "multirank/ranks.h"

namespace thinwire {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

using Bytes = std::vector<std::byte>;

// Bytes that differ by seed, length and place.
Bytes pattern(int seed, size_t size) {
  Bytes bytes(size);
  uint64_t state = 0x9e3779b97f4a7c15u * (static_cast<uint64_t>(seed) + 1) + size;
  for (size_t i = 0; i < size; i += sizeof(state)) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    std::memcpy(bytes.data() + i, &state, std::min(sizeof(state), size - i));
  }
  return bytes;
}

int ceil_log2(int n) {
  int rounds = 0;
  while ((1 << rounds) < n) ++rounds;
  return rounds;
}

template <typename F>
Error error_of(F f) {
  try {
    f();
  } catch (const Error& error) {
    return error;
  }
  return Error(ErrorCode::kOk, "no error");
}

class GroupSuite : public testing::TestWithParam<int> {
 protected:
  void on_all(const std::function<void(Group&)>& body) { on_ranks(GetParam(), body); }
};

INSTANTIATE_TEST_SUITE_P(Ranks, GroupSuite, testing::ValuesIn(rank_counts()),
                         testing::PrintToStringParamName());

TEST_P(GroupSuite, KnowsItsPlace) {
  std::atomic<uint64_t> seen{0};  // ranks of this process, a bit each
  on_all([&](Group& group) {
    EXPECT_EQ(group.size(), GetParam());
    ASSERT_TRUE(0 <= group.rank() && group.rank() < group.size());
    const uint64_t bit = uint64_t{1} << group.rank();
    EXPECT_EQ(seen.fetch_or(bit) & bit, 0u) << "two have rank " << group.rank();
    std::vector<int> all(static_cast<size_t>(group.size()));
    const int mine = group.rank();
    group.all_gather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all)));
    for (int r = 0; r < group.size(); ++r) EXPECT_EQ(all[static_cast<size_t>(r)], r);
  });
  EXPECT_NE(seen, 0u);
}

// Every pair, itself included, both directions at once; lengths around what backends treat apart
// (nothing, in the envelope, the eager limits of 4 and 64 KiB, a piece of 48 KiB, two, a parcel of
// 512 KiB with its fields and without, several).
TEST_P(GroupSuite, SendsAnyLengthToAnyRank) {
  on_all([](Group& group) {
    for (const size_t size :
         {size_t{0}, size_t{1}, size_t{512}, size_t{513}, size_t{4096}, size_t{4097},
          size_t{48} << 10, (size_t{48} << 10) + 1, size_t{65536}, size_t{65537}, size_t{96} << 10,
          (size_t{1} << 19) - 33, (size_t{1} << 19) - 32, (size_t{1} << 19) - 31, size_t{1} << 19,
          (size_t{3} << 20) + 1}) {
      const int n = group.size();
      const auto mine = pattern(group.rank(), size);
      std::vector<Bytes> theirs(static_cast<size_t>(n), Bytes(size, std::byte{0xee}));
      std::vector<std::unique_ptr<Transfer>> transfers;
      for (int r = 0; r < n; ++r) {
        transfers.push_back(group.receive(theirs[static_cast<size_t>(r)], r, 17));
        transfers.push_back(group.send(mine, r, 17));
      }
      group.wait(transfers);
      for (int r = 0; r < n; ++r) EXPECT_EQ(theirs[static_cast<size_t>(r)], pattern(r, size));
    }
  });
}

// The longest that MPI's group cuts into pieces, and one that it does not.
TEST_P(GroupSuite, SendsLongMessages) {
  on_all([](Group& group) {
    for (const size_t size : {size_t{1} << 24, (size_t{1} << 24) + 1}) {
      const int last = group.size() - 1;
      const auto sent = pattern(0, size);
      Bytes received(size);
      std::vector<std::unique_ptr<Transfer>> transfers;
      if (group.rank() == last) transfers.push_back(group.receive(received, 0, 3));
      if (group.rank() == 0) transfers.push_back(group.send(sent, last, 3));
      group.wait(transfers);
      if (group.rank() == last) {
        EXPECT_EQ(received, sent);
      }
    }
  });
}

TEST_P(GroupSuite, SendBeforeOrAfterTheReceive) {
  on_all([](Group& group) {
    const int next = (group.rank() + 1) % group.size();
    const int previous = (group.rank() + group.size() - 1) % group.size();
    for (const bool receive_first : {false, true}) {
      uint64_t in = 0;
      const uint64_t out = static_cast<uint64_t>(group.rank()) + 100;
      std::unique_ptr<Transfer> receive;
      if (receive_first)
        receive = group.receive(std::as_writable_bytes(std::span(&in, 1)), previous, 3);
      group.barrier();
      const auto send = group.send(std::as_bytes(std::span(&out, 1)), next, 3);
      group.barrier();
      if (!receive_first)
        receive = group.receive(std::as_writable_bytes(std::span(&in, 1)), previous, 3);
      group.wait(receive);
      group.wait(send);
      EXPECT_TRUE(send->done() && receive->done());  // stays so
      EXPECT_EQ(in, static_cast<uint64_t>(previous) + 100);
    }
  });
}

// Under one tag in the order of sending, whatever the lengths; tags do not see each other.
TEST_P(GroupSuite, KeepsOrderWithinATagAndNotAcross) {
  on_all([](Group& group) {
    constexpr int kMessages = 40;
    const int next = (group.rank() + 1) % group.size();
    const int previous = (group.rank() + group.size() - 1) % group.size();
    const auto length = [](int i) { return i % 3 == 0 ? size_t{100000} : size_t{8}; };
    std::vector<Bytes> out, in;
    std::vector<std::unique_ptr<Transfer>> transfers;
    for (int i = 0; i < kMessages; ++i) out.push_back(pattern(1000 * group.rank() + i, length(i)));
    for (int i = 0; i < kMessages; ++i) in.emplace_back(length(i));
    for (int i = 0; i < kMessages; ++i)
      transfers.push_back(group.send(out[static_cast<size_t>(i)], next, i % 2 == 0 ? 0 : 29999));
    // The odd ones first, in their order, then the even ones in theirs.
    for (const int first : {1, 0})
      for (int i = first; i < kMessages; i += 2)
        transfers.push_back(
            group.receive(in[static_cast<size_t>(i)], previous, i % 2 == 0 ? 0 : 29999));
    group.wait(transfers);
    for (int i = 0; i < kMessages; ++i)
      EXPECT_EQ(in[static_cast<size_t>(i)], pattern(1000 * previous + i, length(i))) << i;
  });
}

TEST_P(GroupSuite, CarriesManyMessagesAtOnce) {
  on_all([](Group& group) {
    constexpr size_t kMessages = 500;
    const int n = group.size();
    std::vector<std::vector<uint64_t>> in(static_cast<size_t>(n), std::vector<uint64_t>(kMessages));
    std::vector<uint64_t> out(kMessages);
    for (size_t i = 0; i < kMessages; ++i) out[i] = static_cast<uint64_t>(group.rank()) << 32 | i;
    std::vector<std::unique_ptr<Transfer>> transfers;
    for (size_t i = 0; i < kMessages; ++i) {
      for (int r = 0; r < n; ++r) {
        auto& into = in[static_cast<size_t>(r)][i];
        transfers.push_back(
            group.send(std::as_bytes(std::span(&out[i], 1)), r, static_cast<int>(i) % 7));
        transfers.push_back(
            group.receive(std::as_writable_bytes(std::span(&into, 1)), r, static_cast<int>(i) % 7));
      }
    }
    group.wait(transfers);
    for (int r = 0; r < n; ++r)
      for (size_t i = 0; i < kMessages; ++i)
        ASSERT_EQ(in[static_cast<size_t>(r)][i], static_cast<uint64_t>(r) << 32 | i);
  });
}

TEST_P(GroupSuite, NullTransfersAreDone) {
  on_all([](Group& group) {
    const std::unique_ptr<Transfer> none[3];
    group.wait(none);
    group.wait(std::span<const std::unique_ptr<Transfer>>());
  });
}

TEST_P(GroupSuite, MaxOverRanks) {
  on_all([](Group& group) {
    const auto n = static_cast<uint64_t>(group.size());
    const auto r = static_cast<uint64_t>(group.rank());
    EXPECT_EQ(group.max(r), n - 1);
    EXPECT_EQ(group.max(n - 1 - r), n - 1);
    EXPECT_EQ(group.max(0), 0u);
    for (uint64_t holder = 0; holder < n; ++holder)
      EXPECT_EQ(group.max(r == holder ? ~uint64_t{0} - r : r), ~uint64_t{0} - holder);
  });
}

// Nobody leaves a barrier before the last has come.
TEST_P(GroupSuite, BarrierHoldsEverybody) {
  on_all([](Group& group) {
    for (int late = 0; late < group.size(); ++late) {
      using std::chrono::steady_clock;
      // Both clocks are the machine's, so they compare across processes too.
      if (group.rank() == late) std::this_thread::sleep_for(milliseconds(5));
      const auto came = static_cast<uint64_t>(steady_clock::now().time_since_epoch().count());
      group.barrier();
      const auto left = static_cast<uint64_t>(steady_clock::now().time_since_epoch().count());
      EXPECT_GE(left, group.max(came));
    }
  });
}

TEST_P(GroupSuite, BroadcastsFromEveryRoot) {
  on_all([](Group& group) {
    for (int root = 0; root < group.size(); ++root) {
      for (const size_t size : {size_t{0}, size_t{1}, size_t{70001}}) {
        auto buffer = group.rank() == root ? pattern(root, size) : Bytes(size);
        group.broadcast(buffer, root);
        EXPECT_EQ(buffer, pattern(root, size));
      }
    }
    Bytes none;
    EXPECT_EQ(error_of([&] { group.broadcast(none, group.size()); }).code(), ErrorCode::kContract);
  });
}

TEST_P(GroupSuite, GathersFromAll) {
  on_all([](Group& group) {
    const auto n = static_cast<size_t>(group.size());
    for (const size_t size : {size_t{0}, size_t{1}, size_t{70001}}) {
      const auto mine = pattern(group.rank(), size);
      Bytes all(size * n), expected;
      for (int r = 0; r < group.size(); ++r) {
        const auto theirs = pattern(r, size);
        expected.insert(expected.end(), theirs.begin(), theirs.end());
      }
      group.all_gather(mine, all);
      EXPECT_EQ(all, expected);
      // In place.
      Bytes again(size * n);
      const auto slot = std::span(again).subspan(size * static_cast<size_t>(group.rank()), size);
      std::copy(mine.begin(), mine.end(), slot.begin());
      group.all_gather(slot, again);
      EXPECT_EQ(again, expected);
    }
    Bytes mine(3), all(3 * n + 1);
    EXPECT_EQ(error_of([&] { group.all_gather(mine, all); }).code(), ErrorCode::kContract);
  });
}

TEST_P(GroupSuite, GathersDifferentLengths) {
  on_all([](Group& group) {
    const auto length = [](int r) {
      return r % 3 == 1 ? size_t{0} : size_t{1000} * static_cast<size_t>(r + 1);
    };
    const auto all = group.all_gather_v(pattern(group.rank(), length(group.rank())));
    ASSERT_EQ(all.size(), static_cast<size_t>(group.size()));
    for (int r = 0; r < group.size(); ++r)
      EXPECT_EQ(all[static_cast<size_t>(r)], pattern(r, length(r)));
  });
}

// All refuse it together, naming the rank, and go on.
TEST_P(GroupSuite, RefusesToGatherTooMuch) {
  on_all([](Group& group) {
    const int last = group.size() - 1;
    const Bytes mine(group.rank() == last ? 101 : 100);
    const auto error = error_of([&] { group.all_gather_v(mine, 100); });
    EXPECT_EQ(error.code(), ErrorCode::kMismatch);
    EXPECT_THAT(error.what(), HasSubstr("rank " + std::to_string(last) + " has 101 bytes"));
    EXPECT_EQ(group.all_gather_v(mine, 101).size(), static_cast<size_t>(group.size()));
  });
}

TEST_P(GroupSuite, LibrarySumsFloats) {
  on_all([](Group& group) {
    for (const size_t count : {size_t{0}, size_t{1}, size_t{5}, size_t{100003}}) {
      std::vector<float> values(count);
      // Small integers: exact in any order.
      for (size_t i = 0; i < count; ++i)
        values[i] = static_cast<float>((i % 100) * (static_cast<size_t>(group.rank()) + 1));
      group.library_all_reduce(values);
      const auto n = static_cast<size_t>(group.size());
      for (size_t i = 0; i < count; ++i)
        ASSERT_EQ(values[i], static_cast<float>((i % 100) * (n * (n + 1) / 2)));
    }
  });
}

// Bytes and rounds as docs/collectives.md states them.
TEST_P(GroupSuite, CountsItsBytes) {
  on_all([](Group& group) {
    const auto n = static_cast<uint64_t>(group.size());
    const auto rounds = static_cast<uint64_t>(ceil_log2(group.size()));
    const auto cost = [&](const std::function<void()>& f) {
      const auto sent = group.bytes_sent(), received = group.bytes_received();
      f();
      return std::pair(group.bytes_sent() - sent, group.bytes_received() - received);
    };
    EXPECT_EQ(cost([&] { group.barrier(); }), std::pair(8 * rounds, 8 * rounds));
    EXPECT_EQ(cost([&] { group.max(1); }), std::pair(8 * rounds, 8 * rounds));
    Bytes mine(100), all(100 * n);
    EXPECT_EQ(cost([&] { group.all_gather(mine, all); }), std::pair(100 * (n - 1), 100 * (n - 1)));
    EXPECT_EQ(cost([&] { group.all_gather_v(mine); }), std::pair(108 * (n - 1), 108 * (n - 1)));
    const auto [sent, received] = cost([&] { group.broadcast(mine, 0); });
    EXPECT_EQ(received, group.rank() == 0 ? 0u : 100u);
    EXPECT_LE(sent, 100 * rounds);
    if (group.rank() == 0) {
      EXPECT_EQ(sent, 100 * rounds);
    }
  });
}

TEST_P(GroupSuite, ChecksRanksAndTags) {
  on_all([](Group& group) {
    Bytes bytes(1);
    for (const int peer : {-1, group.size()}) {
      EXPECT_EQ(error_of([&] { group.send(bytes, peer, 0); }).code(), ErrorCode::kContract);
      EXPECT_EQ(error_of([&] { group.receive(bytes, peer, 0); }).code(), ErrorCode::kContract);
    }
    EXPECT_EQ(error_of([&] { group.send(bytes, 0, -1); }).code(), ErrorCode::kContract);
    EXPECT_EQ(error_of([&] { group.receive(bytes, 0, 32768); }).code(), ErrorCode::kContract);
  });
}

TEST_P(GroupSuite, DescribesTransfers) {
  on_all([](Group& group) {
    Bytes in(12);
    const auto receive = group.receive(in, 0, 5);
    EXPECT_EQ(receive->describe(), "receive of 12 bytes from rank 0, tag 5");
    const auto name = "send of 12 bytes to rank " + std::to_string(group.rank()) + ", tag 5";
    std::vector<std::unique_ptr<Transfer>> sends;
    const Bytes out(12);
    if (group.rank() == 0)
      for (int r = 0; r < group.size(); ++r) sends.push_back(group.send(out, r, 5));
    if (group.rank() == 0) {
      EXPECT_EQ(sends[0]->describe(), name);
    }
    group.wait(receive);
    group.wait(sends);
  });
}

TEST_P(GroupSuite, SplitsByColour) {
  on_all([](Group& group) {
    const int colour = group.rank() % 3;
    const auto part = group.split(colour);
    EXPECT_EQ(part->rank(), group.rank() / 3);
    EXPECT_EQ(part->size(), (group.size() - colour + 2) / 3);
    EXPECT_EQ(part->deadline(), group.deadline());
    EXPECT_EQ(part->max(static_cast<uint64_t>(group.rank())),
              static_cast<uint64_t>((group.size() - 1 - colour) / 3 * 3 + colour));
    // Of a split group, with negative colours; then one rank each.
    const auto half = part->split(part->rank() % 2 == 0 ? -1 : 1 << 30);
    EXPECT_EQ(half->rank(), part->rank() / 2);
    half->barrier();
    const auto alone = half->split(half->rank());
    EXPECT_EQ(alone->size(), 1);
    alone->barrier();
    group.barrier();
  });
}

// The parent by one thread, the split group by another, under the same tags: an exchange does that.
TEST_P(GroupSuite, TwoThreadsTalkInTwoGroups) {
  on_all([](Group& group) {
    const auto other = group.split(0);
    const auto talk = [](Group& g, int seed) {
      const int next = (g.rank() + 1) % g.size();
      const int previous = (g.rank() + g.size() - 1) % g.size();
      for (int i = 0; i < 50; ++i) {
        const size_t size = i % 5 == 0 ? 80000 : 24;
        const auto out = pattern(seed + 10 * g.rank() + i, size);
        Bytes in(size);
        const std::unique_ptr<Transfer> both[] = {g.receive(in, previous, 1), g.send(out, next, 1)};
        g.wait(both);
        ASSERT_EQ(in, pattern(seed + 10 * previous + i, size));
        if (i % 10 == 0) g.barrier();
      }
    };
    std::exception_ptr failed;
    std::thread thread([&] {
      try {
        talk(*other, 5000);
      } catch (...) {
        failed = std::current_exception();
      }
    });
    try {
      talk(group, 90000);
    } catch (...) {
      thread.join();
      throw;
    }
    thread.join();
    if (failed) std::rethrow_exception(failed);
  });
}

// The one who waits hears who is late and for what, in time; a receive that was given up takes no
// message meant for a later one.
TEST_P(GroupSuite, AWaitEndsAtTheDeadline) {
  on_all([](Group& group) {
    const auto part = group.split(0);
    if (part->rank() == 0) {
      const int last = part->size() - 1;
      Bytes in(9);
      part->set_deadline(milliseconds(50));
      const auto begin = std::chrono::steady_clock::now();
      const auto error = error_of([&] {
        const std::unique_ptr<Transfer> two[] = {part->receive(in, last, 7),
                                                 part->receive(in, last, 8)};
        part->wait(two);
      });
      EXPECT_GE(std::chrono::steady_clock::now() - begin, milliseconds(50));
      EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
      EXPECT_EQ(error.code(), ErrorCode::kTimeout);
      EXPECT_STREQ(error.what(),
                   ("group: no end within the deadline of 50 ms: receive of 9 bytes from rank " +
                    std::to_string(last) + ", tag 7, and 1 more")
                       .c_str());
    }
    group.barrier();
  });
}

TEST_P(GroupSuite, RefusesAMessageOfAnotherLength) {
  on_all([](Group& group) {
    for (const size_t sent : {size_t{0}, size_t{11}, size_t{13}, size_t{512}}) {
      const auto part = group.split(0);
      const int last = part->size() - 1;
      const Bytes out(sent);
      std::unique_ptr<Transfer> send;
      if (part->rank() == last) send = part->send(out, 0, 4);
      if (part->rank() == 0) {
        Bytes in(12);
        const auto receive = part->receive(in, last, 4);
        const auto error = error_of([&] { part->wait(receive); });
        EXPECT_EQ(error.code(), ErrorCode::kMismatch);
        EXPECT_THAT(error.what(),
                    HasSubstr("receive of 12 bytes from rank " + std::to_string(last) +
                              ", tag 4: the message has " + std::to_string(sent)));
      }
      part->wait(send);
      group.barrier();
    }
  });
}

}  // namespace
}  // namespace thinwire
