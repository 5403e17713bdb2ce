// Moves of all sections, by the method of each.
// SPDX-License-Identifier: Apache-2.0
#include "plan/moves.h"

#include "comm/sealed_words.h"
#include "core/check.h"

namespace thinwire {

double sent_at(const Moves& moves, Level level) noexcept {
  double bytes = 0;
  for (const Move& move : moves.moves)
    for (const Leg& leg : move.legs)
      if (leg.level == level) bytes += leg.sent;
  return bytes;
}

Moves moves_of(const StepLayout& layout, size_t rank, uint64_t step) {
  Moves all;
  for (const LaidSection& section : layout.sections()) {
    const std::string_view method = section.method->name;
    if (method == "dense" || method == "scatter-reduce" || method == "sparse-reduce")
      add_owned(layout, section, rank, all);
    else if (method == "gather")
      add_gather(layout, section, rank, step, all);
    else if (method == "low-rank" || method == "shared-index")
      add_agreed(layout, section, rank, step, all);
    else
      THINWIRE_CHECK(false, "plan: method '" + std::string(method) + "' has no moves");
  }
  return all;
}

double agreement_bytes(size_t ranks) noexcept {
  double bytes = 0;
  for (size_t distance = 1; distance < ranks; distance *= 2) bytes += sizeof(SealedWord);
  return bytes;
}

}  // namespace thinwire
