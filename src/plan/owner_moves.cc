// Moves of dense, scatter-reduce and sparse-reduce: parts go to owners, owners hand out means.
// SPDX-License-Identifier: Apache-2.0
#include "plan/moves.h"
#include "plan/owner_rows.h"

namespace thinwire {
namespace {

Move owner_move(const OwnerRow& row, size_t rank) {
  const auto others = static_cast<double>(row.shares.size() - 1);
  const OwnerShare& own = row.shares[rank];
  Leg parts, sums, means;
  parts.encode_seconds =
      row.by_owner ? row.whole.encode_seconds - own.encode_seconds : row.encode_seconds;
  parts.sent = row.whole.size - own.size;
  parts.received = others * own.size;
  sums.encode_seconds = own.encode_seconds;
  sums.decode_seconds = (others + 1) * own.decode_seconds;  // contributions, and the mean
  sums.sent = parts.received;
  sums.received = parts.sent;
  means.decode_seconds =
      row.by_owner ? row.whole.decode_seconds - own.decode_seconds : row.decode_seconds;
  return {.bucket = row.place, .after = {}, .legs = {parts, sums, means}};
}

}  // namespace

// In scatter-reduce a rank is at most a window of chunks ahead of an owner.
void add_owned(const StepLayout& layout, const LaidSection& section, size_t rank, Moves& to) {
  const std::string_view method = section.method->name;
  to.exact = to.exact && method != "sparse-reduce";
  const size_t window =
      method == "scatter-reduce" ? window_of(layout.ranks()) : section.rows.size();
  const size_t before = to.moves.size();
  for (const OwnerRow& row : section.rows) {
    Move move = owner_move(row, rank);
    if (to.moves.size() - before >= window) move.after = {to.moves.size() - window};
    to.moves.push_back(std::move(move));
  }
}

}  // namespace thinwire
