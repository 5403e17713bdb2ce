// Sends and receives words with checksums, and refuses damaged ones.
// SPDX-License-Identifier: Apache-2.0
#include "comm/sealed_words.h"

#include <algorithm>
#include <memory>
#include <span>
#include <string>

#include "comm/tags.h"
#include "core/bytes.h"
#include "core/checksum.h"

namespace thinwire {
namespace {

static_assert(sizeof(SealedWord) == 16);

constexpr uint64_t kGathered = 0;  // a place; those of a maximum are distances, from 1 up

SealedWord seal(uint64_t word, uint64_t subject, int sender, uint64_t place) {
  const uint64_t covered[] = {word, subject, static_cast<uint64_t>(sender), place};
  return {.word = word, .seal = checksum(std::as_bytes(std::span(covered)))};
}

uint64_t open(const SealedWord& got, uint64_t subject, int sender, uint64_t place,
              RankNumbers numbers = {}) {
  if (seal(got.word, subject, sender, place).seal != got.seal)
    throw Error(ErrorCode::kCorrupt, "agreement: the word of rank " +
                                         std::to_string(numbers.of(sender)) +
                                         " arrived corrupt, and with it what ranks decide by");
  return got.word;
}

}  // namespace

SealedWord seal_word(uint64_t word, uint64_t subject, int sender) {
  return seal(word, subject, sender, kGathered);
}

uint64_t open_word(const SealedWord& got, uint64_t subject, int sender) {
  return open(got, subject, sender, kGathered);
}

uint64_t seal_of(std::span<const uint64_t> words, uint64_t subject, int sender) {
  const uint64_t about[] = {subject, static_cast<uint64_t>(sender), words.size()};
  return checksum(std::as_bytes(std::span(about)), std::as_bytes(words));
}

std::vector<uint64_t> gather_sealed(Group& group, uint64_t mine, uint64_t subject) {
  const SealedWord own = seal(mine, subject, group.rank(), kGathered);
  std::vector<SealedWord> all(static_cast<size_t>(group.size()));
  group.all_gather(byte_view(own), std::as_writable_bytes(std::span(all)));
  std::vector<uint64_t> words;
  for (int rank = 0; rank < group.size(); ++rank)
    words.push_back(open(all[static_cast<size_t>(rank)], subject, rank, kGathered));
  return words;
}

// By the hops of Group::max. Each hop checks what it takes: a fault that became no fault on its way
// would be lost in the maximum.
uint64_t max_sealed(Group& group, uint64_t mine, uint64_t subject, RankNumbers numbers) {
  const Group::Instant until = group.give_up_at();
  const int n = group.size();
  for (int distance = 1; distance < n; distance *= 2) {
    const auto place = static_cast<uint64_t>(distance);
    const int from = (group.rank() + n - distance) % n;
    const SealedWord own = seal(mine, subject, group.rank(), place);
    SealedWord other{};
    const std::unique_ptr<Transfer> both[] = {
        group.receive(writable_byte_view(other), from, kMaximumTag),
        group.send(byte_view(own), (group.rank() + distance) % n, kMaximumTag)};
    group.wait_until(both, until);
    mine = std::max(mine, open(other, subject, from, place, numbers));
  }
  return mine;
}

}  // namespace thinwire
