// Cuts pieces where tensors end, sorts them and joins neighbours.
// SPDX-License-Identifier: Apache-2.0
#include "exchange/runner/owned_ranges.h"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace thinwire {

std::vector<OwnedRange> owned_ranges(std::span<const Piece> pieces, const Streams& streams) {
  std::vector<OwnedRange> ranges;
  for (const Piece& piece : pieces) {
    const ActiveStream& stream = *streams[piece.stream];
    size_t at = 0;  // where the tensor begins in the stream
    for (size_t i = 0; i < stream.tensors().size(); ++i) {
      const size_t count = stream.spec().tensors[i].count();
      const size_t begin = std::max(piece.begin, at);
      const size_t end = std::min(piece.begin + piece.count, at + count);
      if (begin < end)
        ranges.push_back(
            {.tensor = stream.tensors()[i], .begin = begin - at, .count = end - begin});
      at += count;
    }
  }
  const auto key = [](const OwnedRange& range) { return std::pair(range.tensor, range.begin); };
  std::sort(ranges.begin(), ranges.end(),
            [&](const OwnedRange& a, const OwnedRange& b) { return key(a) < key(b); });
  std::vector<OwnedRange> joined;
  for (const OwnedRange& range : ranges) {
    const bool meets = !joined.empty() && joined.back().tensor == range.tensor &&
                       joined.back().begin + joined.back().count == range.begin;
    if (meets)
      joined.back().count += range.count;
    else
      joined.push_back(range);
  }
  return joined;
}

}  // namespace thinwire
