// Tests how long outboxes wait, when they end, for a rank that takes nothing.
// SPDX-License-Identifier: Apache-2.0
#include "exchange/faulty/patient_outbox.h"

#include <gtest/gtest.h>

#include <chrono>
#include <latch>
#include <memory>
#include <vector>

#include "thinwire/threads.h"

namespace thinwire {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr int kBuckets = 4;
constexpr size_t kBytes = 100;
constexpr milliseconds kDeadline(2000);

// One deadline for all of them, and not one for each.
TEST(PatientOutbox, ThoseOfAllBucketsWaitForOneDeadline) {
  std::latch ended(1);
  run_local(2, [&](Group& group) {
    if (group.rank() == 1) return ended.wait();  // it hangs after the step
    group.set_deadline(kDeadline);
    Roster roster(2, 0, 1);
    roster.begin();
    BufferPool pool;
    std::vector<std::unique_ptr<PatientOutbox>> outboxes;
    for (int bucket = 0; bucket < kBuckets; ++bucket) {
      outboxes.push_back(std::make_unique<PatientOutbox>(group, roster));
      outboxes.back()->send(pool.take(kBytes), kBytes, bucket);
    }
    const auto since = steady_clock::now();
    outboxes.clear();
    const auto took = steady_clock::now() - since;
    EXPECT_GE(took, kDeadline);
    EXPECT_LT(took, 3 * kDeadline);
    EXPECT_FALSE(roster.is_lost(1));  // it may come back
    ended.count_down();
  });
}

}  // namespace
}  // namespace thinwire
