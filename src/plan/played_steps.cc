// PlayedSteps: counts what each rank sends, and plays the steps of those that send most.
// SPDX-License-Identifier: Apache-2.0
#include "plan/played_steps.h"

#include <algorithm>

#include "comm/sealed_words.h"
#include "plan/agreement_link.h"

namespace thinwire {
namespace {

bool has_roots(const Moves& moves) {
  return std::any_of(moves.moves.begin(), moves.moves.end(), [](const Move& move) {
    return std::any_of(move.legs.begin(), move.legs.end(),
                       [](const Leg& leg) { return leg.from_root; });
  });
}

// Over the even or the odd ones of so many steps that each rank was the root as often as any other.
// Steps of one parity differ by their roots alone.
double mean_sent(const StepLayout& layout, size_t rank, uint64_t parity) {
  const auto sent_in = [&](uint64_t step) {
    return sent_at(moves_of(layout, rank, step), Level::kBetween);
  };
  const size_t n = layout.ranks();
  const double usual = sent_in(root_of(parity, n) == rank ? parity + 2 : parity);
  if (n % 2 == 0 && rank % 2 != parity) return usual;  // never the root
  const double as_root = sent_in(rank % 2 == parity ? rank : rank + n);
  const auto steps = static_cast<double>(n % 2 == 0 ? n / 2 : n);
  return (usual * (steps - 1) + as_root) / steps;
}

// Copies out are made before a leg sends. Copies in are made when the next leg begins; those of the
// last leg are counted at its own begin.
void add_copies(Move& move, double seconds_per_byte) {
  constexpr double kOneWay = 0.5;  // of what a byte costs that is sent and received
  const auto cost = [&](double bytes) { return kOneWay * seconds_per_byte * bytes; };
  for (size_t i = 0; i < move.legs.size(); ++i) {
    Leg& leg = move.legs[i];
    if (leg.level != Level::kBetween) continue;
    leg.copy_seconds += cost(leg.sent);
    move.legs[std::min(i + 1, move.legs.size() - 1)].copy_seconds += cost(leg.received);
  }
}

// Messages of agreements, one after another.
double agreement_seconds(size_t ranks, const LinkSpec& link) {
  return agreement_bytes(ranks) / sizeof(SealedWord) * link.latency_seconds;
}

}  // namespace

PlayedSteps::PlayedSteps(const LevelsLayout& layout, const StepTimeline& timeline)
    : layout_(layout),
      timeline_(timeline),
      times_(bucket_times(layout.plan(), timeline)),
      sent_(layout.places() * layout.groups()),
      inside_(sent_.size()) {
  for (size_t place = 0; place < layout.places(); ++place) {
    places_.push_back(count_place(place));
    between_ += places_.back().between;
  }
}

PlayedSteps::Place PlayedSteps::count_place(size_t place) {
  const size_t groups = layout_.groups();
  Place counted;
  size_t busiest = 0;
  for (const uint64_t step : {0, 1})
    counted.samples[step] = layout_.moves(place, root_of(step, groups), step);
  const double inside = sent_at(counted.samples[0], Level::kInside);
  for (size_t group = 0; group < groups; ++group) {
    const StepLayout& between = layout_.between(place);
    const double sent =
        agreement_bytes(groups) + (mean_sent(between, group, 0) + mean_sent(between, group, 1)) / 2;
    if (sent > counted.between) busiest = group;
    counted.between = std::max(counted.between, sent);
    const size_t rank = group * layout_.places() + place;
    inside_[rank] = inside + agreement_bytes(layout_.places());
    sent_[rank] = sent + inside_[rank];
  }
  for (const uint64_t step : {0, 1}) {
    if (!has_roots(counted.samples[step]))
      counted.samples[step] = layout_.moves(place, busiest, step);
    exact_ = exact_ && counted.samples[step].exact;
  }
  return counted;
}

PlayLinks PlayedSteps::links_of(const Place& place, const PlanRequest& request) const {
  const bool levels = layout_.places() > 1;
  PlayLinks links{.between = request.link, .inside = request.inside};
  if (levels && between_ > 0) links.between.bits_per_second *= place.between / between_;
  if (!levels && request.per_machine > 1) {
    links.between.bits_per_second /= request.per_machine;
    links.inside_share = (request.per_machine - 1.0) / (request.ranks - 1.0);
  }
  return links;
}

Played PlayedSteps::play(const PlanRequest& request, bool free_coding) const {
  Played slowest;
  for (const Place& place : places_)
    if (const Played played = play(place, request, free_coding); played.seconds > slowest.seconds)
      slowest = played;
  return slowest;
}

Played PlayedSteps::play(const Place& place, const PlanRequest& request, bool free_coding) const {
  const PlayLinks links = links_of(place, request);
  Played mean;
  for (const Moves& sample : place.samples) {
    std::vector<Move> moves = sample.moves;
    for (Move& move : moves) {
      for (Leg& leg : move.legs) {
        leg.encode_seconds *= free_coding ? 0 : request.thread_factor;
        leg.decode_seconds *= free_coding ? 0 : request.thread_factor;
      }
      if (!free_coding) add_copies(move, request.copy_seconds_per_byte * (1 - links.inside_share));
    }
    const Played played =
        play_step(moves, times_, timeline_.backward_seconds, links, request.own_core);
    mean.seconds += played.seconds / 2;
    mean.encode_seconds += played.encode_seconds / 2;
    mean.decode_seconds += played.decode_seconds / 2;
    mean.wire_seconds += played.wire_seconds / 2;
  }
  mean.seconds += agreement_seconds(layout_.places(), request.inside) +
                  agreement_seconds(layout_.groups(), agreement_link(request)) +
                  timeline_.compute_seconds - timeline_.backward_seconds;
  return mean;
}

}  // namespace thinwire
