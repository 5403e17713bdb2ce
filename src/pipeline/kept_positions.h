// KeptPositions: the positions that a step's sparse messages kept, for the returning gradients.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "thinwire/boundary.h"

namespace thinwire {

class KeptPositions {
 public:
  // Called by both ends that share this, when they are made: nothing grows later.
  void prepare(size_t micro_batches) {
    if (notes_.size() < micro_batches) notes_.resize(micro_batches);
  }

  // Of a micro-batch's whole tensor, ascending. Forgets what was noted of the micro-batch before.
  std::vector<uint32_t>& note(const Visit& visit) {
    Note& note = notes_[visit.micro_batch];
    note.step = visit.step;
    note.there = true;
    note.positions.clear();
    return note.positions;
  }

  // nullptr if nothing was noted in this step.
  const std::vector<uint32_t>* find(const Visit& visit) const {
    if (visit.micro_batch >= notes_.size()) return nullptr;
    const Note& note = notes_[visit.micro_batch];
    return note.there && note.step == visit.step ? &note.positions : nullptr;
  }

  void forget(const Visit& visit) {
    if (visit.micro_batch < notes_.size()) notes_[visit.micro_batch].there = false;
  }

 private:
  struct Note {
    uint64_t step = 0;
    bool there = false;
    std::vector<uint32_t> positions;
  };
  std::vector<Note> notes_;  // of each micro-batch
};

}  // namespace thinwire
