// Packs a fault into one word: code in the top byte, then ~stream (32 bits), 8 bits free, ~rank
// (16). Of a rank that asked the upper half is zero and one of the free bits is set.
// SPDX-License-Identifier: Apache-2.0
#include "exchange/step/verdict.h"

#include <algorithm>
#include <cassert>
#include <string>

#include "core/check.h"

namespace thinwire {
namespace {

constexpr uint16_t kNobody = 0xFFFF;  // rank -1
constexpr uint64_t kAsked = uint64_t{1} << 16;

static_assert(kMostRanks < kNobody);

}  // namespace

void check_rank_count(const Group& group, std::string_view origin) {
  THINWIRE_CHECK(group.size() <= kMostRanks,
                 std::string(origin) + ": " + std::to_string(group.size()) +
                     " ranks; frames have room for the numbers of " + std::to_string(kMostRanks));
}

uint64_t pack(const Verdict& verdict) noexcept {
  if (verdict.asked) return kAsked | static_cast<uint16_t>(~verdict.rank);
  if (verdict.code == ErrorCode::kOk) return 0;
  assert(verdict.stream <= UINT32_MAX && verdict.rank < kNobody);
  const auto stream = static_cast<uint32_t>(~static_cast<uint32_t>(verdict.stream));
  const uint16_t rank = verdict.rank < 0 ? kNobody : static_cast<uint16_t>(verdict.rank);
  return uint64_t{static_cast<uint8_t>(verdict.code)} << 56 | uint64_t{stream} << 24 |
         static_cast<uint16_t>(~rank);
}

Verdict unpack_verdict(uint64_t word) noexcept {
  if (word == 0) return {};
  const auto rank = static_cast<uint16_t>(~word);
  if (word >> 16 == 1) return {.rank = rank, .asked = true};
  return {.code = static_cast<ErrorCode>(word >> 56),
          .stream = static_cast<uint32_t>(~(word >> 24)),
          .rank = rank == kNobody ? -1 : rank};
}

uint64_t worst_of_all(Group& group, uint64_t mine, RankNumbers numbers) {
  constexpr uint64_t kSubject = 0x7665726469637400;  // "verdict", of whichever step
  return max_sealed(group, mine, kSubject, numbers);
}

Verdict read_verdict(uint64_t word, int ranks, size_t streams, std::string_view origin) {
  const Verdict verdict = unpack_verdict(word);
  const bool is_fault =
      verdict.code == ErrorCode::kNonFinite || verdict.code == ErrorCode::kCorrupt;
  const bool known = is_fault ? verdict.stream < streams : verdict.asked || word == 0;
  if (!known || verdict.rank >= ranks)
    throw Error(ErrorCode::kCorrupt,
                std::string(origin) + ": a rank's verdict on the step makes no sense");
  return verdict;
}

void FaultLog::add(ErrorCode code, size_t stream, int rank) noexcept {
  word_ = std::max(word_, pack({.code = code, .stream = stream, .rank = rank}));
}

void FaultLog::ask_to_skip(int rank) noexcept {
  word_ = std::max(word_, pack({.rank = rank, .asked = true}));
}

}  // namespace thinwire
