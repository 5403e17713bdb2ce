// The tags of all messages that exchanges send, apart from those of a group's collectives.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "comm/tags.h"
#include "exchange/layout/plan.h"

namespace thinwire {

// Bucket i of an exchange has the tags 2i and 2i + 1.
inline constexpr int kTagsPerBucket = 2;
inline constexpr int kBucketTagsEnd = kTagsPerBucket * static_cast<int>(kMaxBuckets);

// Rounds in which ranks tell each other something about a step.
inline constexpr int kAttendanceTag = 29000;  // weights, and what memories owe
inline constexpr int kStatisticsTag = 29001;  // by which a rule chooses among vectors
inline constexpr int kAccountsTag = 29002;    // of the messages that a rank got

static_assert(kBucketTagsEnd <= kAttendanceTag && kAttendanceTag < kStatisticsTag &&
              kStatisticsTag < kAccountsTag && kAccountsTag < kMaximumTag);

// What a rank that leaves owes travels between two steps. No bucket is under way then, so that
// these may be tags of a bucket.
inline constexpr int kOwedSizeTag = 0, kOwedStateTag = 1;

static_assert(kOwedSizeTag != kOwedStateTag && kOwedStateTag < kBucketTagsEnd);

}  // namespace thinwire
