// The tags that are reserved for the collectives of a Group.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "core/check.h"

namespace thinwire {

// MPI promises tags up to 32767. One tag for each collective is enough: all ranks call them in the
// same order, and messages under one tag arrive in the order of sending.
inline constexpr int kMaximumTag = 30000;  // and barrier
inline constexpr int kBroadcastTag = 30001;
inline constexpr int kGatherTag = 30002;
inline constexpr int kGatherVTag = 30003;
inline constexpr int kReduceTag = 30004;
inline constexpr int kCollectiveTags = 8;  // from kMaximumTag on, for these
static_assert(kReduceTag < kMaximumTag + kCollectiveTags);
inline constexpr int kLastTag = 32767;

inline void check_message(int peer, int size, int tag) {
  THINWIRE_CHECK(0 <= peer && peer < size,
                 "group: no rank " + std::to_string(peer) + " among " + std::to_string(size));
  THINWIRE_CHECK(0 <= tag && tag <= kLastTag, "group: tag " + std::to_string(tag));
}

}  // namespace thinwire
