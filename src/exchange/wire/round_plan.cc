// RoundPlan: puts the offers of a round one after another, and fills cargoes with buckets.
// SPDX-License-Identifier: Apache-2.0
#include "exchange/wire/round_plan.h"

#include <algorithm>
#include <string>

#include "core/check.h"
#include "thinwire/frame.h"

namespace thinwire {
namespace {

// Bytes that a stream offers in one round, at most.
size_t offered_size(const ActiveStream& stream) {
  if (stream.is_plain()) return stream.spec().count() * sizeof(float);
  size_t most = 0;
  for (const bool odd_step : {false, true})
    for (const Round& round : stream.codec().rounds(stream.spec(), odd_step))
      most = std::max(most, round.size);
  return most;
}

}  // namespace

std::vector<RoundPlan> plan_rounds(std::span<ActiveStream* const> streams, bool with_plain,
                                   bool odd_step) {
  std::vector<RoundPlan> layout;
  const auto add = [&](size_t number, size_t member, size_t round, const Round& what) {
    if (layout.size() <= number) layout.resize(number + 1, {.combine = what.combine, .parts = {}});
    RoundPlan& plan = layout[number];
    const ActiveStream& stream = *streams[member];
    const bool floats = what.combine != Round::Combine::kFromRoot;
    THINWIRE_CHECK(plan.combine == what.combine && (!floats || what.size % sizeof(float) == 0),
                   "codec '" + std::string(stream.codec().info().name) +
                       "': a round of one stream does not fit that of another");
    plan.parts.push_back(
        {.member = member, .round = round, .begin = plan.size / sizeof(float), .size = what.size});
    plan.size += floats ? what.size : kFrameHeaderSize + what.size;
  };
  for (size_t member = 0; member < streams.size(); ++member) {
    if (streams[member]->is_plain()) continue;
    const auto rounds = streams[member]->codec().rounds(streams[member]->spec(), odd_step);
    for (size_t i = 0; i < rounds.size(); ++i) add(i, member, i, rounds[i]);
  }
  if (!with_plain) return layout;
  const auto means = std::find_if(layout.begin(), layout.end(), [](const RoundPlan& plan) {
    return plan.combine == Round::Combine::kMean;
  });
  const auto first = static_cast<size_t>(means - layout.begin());
  for (size_t member = 0; member < streams.size(); ++member)
    if (streams[member]->is_plain())
      add(first, member, 0, {.size = streams[member]->spec().count() * sizeof(float)});
  return layout;
}

std::vector<size_t> cargo_ends(const Streams& streams, const std::vector<Bucket>& buckets,
                               size_t bucket_bytes) {
  std::vector<size_t> ends;
  for (size_t begin = 0, end = 0; begin < buckets.size(); begin = end) {
    for (size_t size = 0; end < buckets.size() && (end == begin || size < bucket_bytes); ++end)
      for (const Piece& piece : buckets[end]) size += offered_size(*streams[piece.stream]);
    ends.push_back(end);
  }
  return ends;
}

}  // namespace thinwire
