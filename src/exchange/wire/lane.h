// Lane: the messages under way between this rank and another, in a fixed number of slots.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "exchange/wire/pending.h"

namespace thinwire {

// Transfers and their memory, made once and used in turn: number k has slot k mod slots.
class Ring {
 public:
  Ring(size_t slots, size_t slot_size)
      : slot_size_(slot_size),
        bytes_(std::make_unique_for_overwrite<std::byte[]>(slots * slot_size)),
        transfers_(slots) {}

  size_t slots() const noexcept { return transfers_.size(); }

  std::span<std::byte> bytes(size_t number, size_t size) noexcept {
    return {bytes_.get() + number % slots() * slot_size_, size};
  }
  Pending& transfer(size_t number) noexcept { return transfers_[number % slots()]; }

  bool all_done() {
    return std::all_of(transfers_.begin(), transfers_.end(), [](Pending& p) { return p.done(); });
  }

  // Transfers under way, for errors; null when there is none.
  const Transfer* busy(size_t number) const noexcept {
    return transfers_[number % slots()].transfer();
  }
  const Transfer* busy() const noexcept {
    for (const Pending& one : transfers_)
      if (one.transfer() != nullptr) return one.transfer();
    return nullptr;
  }

 private:
  size_t slot_size_;
  std::unique_ptr<std::byte[]> bytes_;
  std::vector<Pending> transfers_;
};

// Between this rank and `rank`, in a step: chunks that the other owns go out as `parts_out` and
// come back, added, as `means_in`; those that this rank owns come as `parts_in` and go out as
// means, from memory that all lanes share. Acknowledgements travel as means do.
struct Lane {
  Lane(size_t rank_, size_t window, size_t slot_size, size_t mean_size)
      : rank(rank_),
        parts_out(window, slot_size),
        parts_in(window, slot_size),
        means_in(window, mean_size),
        means_out(window, 0) {}

  size_t rank;
  size_t parts_sent = 0;  // chunks of the other's that this rank sent, or, if it sits out, passed
  size_t answered = 0;    // of these: means decoded, or acknowledgements heard
  Ring parts_out;
  Ring parts_in;
  Ring means_in;
  Ring means_out;
};

}  // namespace thinwire
