// PatientOutbox: starts sends, and looks after those that are not done.
// SPDX-License-Identifier: Apache-2.0
#include "exchange/faulty/patient_outbox.h"

#include <algorithm>
#include <string>
#include <utility>

#include "comm/other_ranks.h"
#include "core/bytes.h"

namespace thinwire {

void PatientOutbox::send(Buffer message, size_t size, int tag, bool sized) {
  Letter& letter = letters_.emplace_back();
  letter.size = size;
  letter.message = std::move(message);
  const auto bytes = std::span<const std::byte>(letter.message.bytes()).first(size);
  for_other_ranks(group_, [&](size_t rank) {
    if (!roster_.is_lost(rank) && behind(rank) >= most_)
      roster_.lose(rank,
                   Error(ErrorCode::kPeerLost, "rank " + std::to_string(rank) + " has not taken " +
                                                   std::to_string(most_) + " messages"));
    if (roster_.is_lost(rank)) return;
    Sent& sent = letter.sent.emplace_back(Sent{.rank = rank, .number = nullptr, .bytes = nullptr});
    const int to = static_cast<int>(rank);
    if (sized) sent.number = group_.send(byte_view(letter.size), to, tag);
    sent.bytes = group_.send(bytes, to, sized ? tag + 1 : tag);
  });
}

// Whether it has left.
bool PatientOutbox::look(Sent& sent) {
  if (sent.given_up) return false;
  try {
    for (std::unique_ptr<Transfer>* const transfer : {&sent.number, &sent.bytes})
      if (*transfer != nullptr && (*transfer)->done()) transfer->reset();
  } catch (const Error& error) {
    sent.given_up = true;
    roster_.lose(sent.rank, error);
  }
  return sent.number == nullptr && sent.bytes == nullptr;
}

void PatientOutbox::tidy(BufferPool& buffers) {
  for (auto letter = letters_.begin(); letter != letters_.end();) {
    std::erase_if(letter->sent, [this](Sent& sent) { return look(sent); });
    if (!letter->sent.empty()) {
      ++letter;
      continue;
    }
    buffers.give(letter->message);
    letter = letters_.erase(letter);
  }
}

PatientOutbox::~PatientOutbox() {
  if (under_way_) return;
  BufferPool unused;
  try {
    poll_until(std::chrono::steady_clock::now() + group_.deadline(), [&] {
      tidy(unused);
      return delivered();
    });
    // The outboxes of other buckets do not wait for the same ranks again.
    for (const Letter& letter : letters_)
      for (const Sent& sent : letter.sent) roster_.note(sent.rank, LeftOutFor::kSilence);
  } catch (const std::exception&) {  // too many ranks are lost
  }
}

// To all ranks that were not silent in the last step.
bool PatientOutbox::delivered() const noexcept {
  for (const Letter& letter : letters_)
    for (const Sent& sent : letter.sent)
      if (roster_.awaits(sent.rank)) return false;
  return true;
}

size_t PatientOutbox::behind(size_t rank) const noexcept {
  size_t count = 0;
  for (const Letter& letter : letters_)
    count +=
        static_cast<size_t>(std::count_if(letter.sent.begin(), letter.sent.end(),
                                          [&](const Sent& sent) { return sent.rank == rank; }));
  return count;
}

}  // namespace thinwire
