// LevelsLayout: sums inside a group, the exchange of what a place holds, the way back.
// SPDX-License-Identifier: Apache-2.0
#include "plan/levels_layout.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "exchange/levels/inside_level.h"
#include "exchange/owner/shard.h"

namespace thinwire {

Result<std::unique_ptr<LevelsLayout>> LevelsLayout::make(const std::vector<TensorSpec>& tensors,
                                                         const ExchangeOptions& options, int ranks,
                                                         CostTable& costs) {
  Result<Sections> settled = resolve_playable(tensors, options, ranks);
  if (!settled) return settled.status();
  const Sections& sections = settled.value();
  auto layout = std::make_unique<LevelsLayout>();
  const auto inside = static_cast<size_t>(options.inside);
  layout->groups_ = static_cast<size_t>(ranks) / inside;
  layout->places_.resize(inside);
  if (inside == 1) {
    Place& only = layout->places_.front();
    only.tensors.resize(tensors.size());
    std::iota(only.tensors.begin(), only.tensors.end(), size_t{0});
    only.between = std::make_unique<StepLayout>(sections, tensors, options, layout->groups_, costs);
    return layout;
  }
  const std::vector<size_t> holder_of = choose_holders(sections, tensors, inside);
  for (size_t place = 0; place < inside; ++place) {
    const Holding held = holding_of(place, holder_of, sections, tensors);
    layout->places_[place] = {.tensors = held.tensors,
                              .between = std::make_unique<StepLayout>(
                                  held.sections, held.specs, options, layout->groups_, costs)};
  }
  layout->lay_inside(tensors, options, holder_of, costs);
  return layout;
}

void LevelsLayout::lay_inside(const std::vector<TensorSpec>& tensors,
                              const ExchangeOptions& options, const std::vector<size_t>& holder_of,
                              CostTable& costs) {
  Store store;
  Coders coders;
  inside_plan_ = plan_inside(tensors, options);
  const Streams streams = inside_streams(inside_plan_, options, store);
  const CodecCost& cost = costs.of({.codec = "fp32"});
  std::vector<size_t> holder_of_stream;
  for (const PlannedStream& stream : inside_plan_.streams)
    holder_of_stream.push_back(holder_of[stream.tensors.front()]);
  buckets_with_.resize(tensors.size());
  for (size_t bucket = 0; bucket < inside_plan_.buckets.size(); ++bucket) {
    std::vector<InsideShare> shares;
    for (const Chunk& chunk :
         deal_out(streams, inside_plan_.buckets[bucket], places(), holder_of_stream, coders)) {
      const auto frames = static_cast<double>(chunk.parts.size());
      const auto values = static_cast<double>(chunk.count);
      const double fixed = frames * cost.seconds_per_frame / 2;
      shares.push_back({.size = static_cast<double>(chunk.size),
                        .encode_seconds = fixed + values * cost.encode_seconds_per_value,
                        .decode_seconds = fixed + values * cost.decode_seconds_per_value});
    }
    inside_.push_back(std::move(shares));
    for (const Piece& piece : inside_plan_.buckets[bucket])
      buckets_with_[inside_plan_.streams[piece.stream].tensors.front()].push_back(bucket);
  }
}

LevelsLayout::InsideShare LevelsLayout::sum_inside(size_t bucket) const {
  InsideShare sum;
  for (const InsideShare& share : inside_[bucket]) {
    sum.size += share.size;
    sum.encode_seconds += share.encode_seconds;
    sum.decode_seconds += share.decode_seconds;
  }
  return sum;
}

Moves LevelsLayout::moves(size_t place, size_t group, uint64_t step) const {
  if (places() == 1) return moves_of(between(0), group, step);
  Moves all;
  add_sums(place, all);
  add_between(place, group, step, all);
  add_hand_outs(place, all);
  return all;
}

// Move b is that of bucket b.
void LevelsLayout::add_sums(size_t place, Moves& to) const {
  const auto n = static_cast<double>(places());
  for (size_t bucket = 0; bucket < inside_.size(); ++bucket) {
    const InsideShare sum = sum_inside(bucket);
    const InsideShare& own = inside_[bucket][place];
    const Leg parts{.encode_seconds = sum.encode_seconds - own.encode_seconds,
                    .sent = sum.size - own.size,
                    .received = (n - 1) * own.size,
                    .level = Level::kInside};
    to.moves.push_back({.bucket = bucket,
                        .after = {},
                        .legs = {parts, {.decode_seconds = n * own.decode_seconds}}});
  }
}

// Buckets between groups begin in their order, each when the tensors that it needs are summed: when
// a move without work has ended, the gate of the bucket.
void LevelsLayout::add_between(size_t place, size_t group, uint64_t step, Moves& to) const {
  const StepLayout& layout = between(place);
  std::vector<size_t> gates, last_inside;
  std::vector<bool> awaited(inside_.size());
  size_t latest = 0;
  for (const Bucket& bucket : layout.plan().buckets) {
    Move gate{.bucket = 0, .after = {}, .legs = {Leg{}}};
    if (!gates.empty()) gate.after.push_back(gates.back());
    for (const Piece& piece : bucket)
      for (const size_t held : layout.plan().streams[piece.stream].tensors)
        for (const size_t inside : buckets_with_[places_[place].tensors[held]]) {
          latest = std::max(latest, inside);
          if (!awaited[inside]) gate.after.push_back(inside);
          awaited[inside] = true;
        }
    gate.bucket = latest;
    last_inside.push_back(latest);
    gates.push_back(to.moves.size());
    to.moves.push_back(std::move(gate));
  }
  const size_t first = to.moves.size();
  Moves moves = moves_of(layout, group, step);
  to.exact = to.exact && moves.exact;
  for (Move& move : moves.moves) {
    for (size_t& after : move.after) after += first;
    move.after.push_back(gates[move.bucket]);
    move.bucket = last_inside[move.bucket];
    to.moves.push_back(std::move(move));
  }
}

// When all that the rank has begun is done.
void LevelsLayout::add_hand_outs(size_t place, Moves& to) const {
  if (inside_.empty()) return;
  const auto n = static_cast<double>(places());
  Move gate{.bucket = inside_.size() - 1, .after = {}, .legs = {Leg{}}};
  for (size_t move = 0; move < to.moves.size(); ++move) gate.after.push_back(move);
  const size_t open = to.moves.size();
  to.moves.push_back(std::move(gate));
  for (size_t bucket = 0; bucket < inside_.size(); ++bucket) {
    const InsideShare sum = sum_inside(bucket);
    const InsideShare& own = inside_[bucket][place];
    const Leg means{.encode_seconds = own.encode_seconds,
                    .sent = (n - 1) * own.size,
                    .received = sum.size - own.size,
                    .level = Level::kInside};
    Move move{.bucket = bucket,
              .after = {open},
              .legs = {means, {.decode_seconds = sum.decode_seconds - own.decode_seconds}}};
    if (bucket >= kHandOutWindow) move.after.push_back(to.moves.size() - kHandOutWindow);
    to.moves.push_back(std::move(move));
  }
}

std::string LevelsLayout::method_names() const {
  std::string names;
  for (const Place& place : places_)
    for (const LaidSection& section : place.between->sections()) {
      const std::string_view name = section.method->name;
      if (names.find(name) == std::string::npos)
        names += (names.empty() ? "" : ", ") + std::string(name);
    }
  return names;
}

double LevelsLayout::memory_bytes() const {
  double most = 0;
  for (const Place& place : places_) most = std::max(most, place.between->memory_bytes());
  return most;
}

}  // namespace thinwire
