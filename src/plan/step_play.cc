// An event simulation of one rank, all others doing the same at the same time.
// SPDX-License-Identifier: Apache-2.0
#include "plan/step_play.h"

#include <algorithm>
#include <array>
#include <limits>
#include <queue>
#include <tuple>

namespace thinwire {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

class StepPlay {
 public:
  StepPlay(const std::vector<Move>& moves, const std::vector<double>& bucket_times,
           double backward_seconds, const PlayLinks& links, bool own_core)
      : moves_(moves),
        bucket_times_(bucket_times),
        backward_seconds_(backward_seconds),
        links_(links),
        own_core_(own_core),
        states_(moves.size()),
        of_bucket_(bucket_times.size()) {
    for (size_t move = 0; move < moves.size(); ++move) {
      of_bucket_[moves[move].bucket].push_back(move);
      states_[move].awaited = moves[move].after.size();
      for (const size_t after : moves[move].after) states_[after].next.push_back(move);
    }
  }

  Played play() {
    release();
    while (true) {
      start_work();
      const double at = std::min({work_ends_, next_arrival(), next_progress()});
      if (!(at < kNever)) break;  // costs without bounds come to no end
      go_on(at);
      if (work_ends_ <= now_) end_work();
      while (next_arrival() <= now_) {
        const size_t move = arrivals_.top().second;
        arrivals_.pop();
        next_leg(move);
      }
      release();
    }
    played_.seconds = now_;
    for (const Wire& wire : wires_)
      played_.seconds = std::max({played_.seconds, wire.out_free, wire.in_free});
    return played_;
  }

 private:
  struct State {
    size_t leg = 0;
    size_t awaited = 0;        // moves before it that have not ended
    std::vector<size_t> next;  // moves that wait for this one
  };
  struct Wire {
    double out_free = 0, in_free = 0;
  };
  // What an owner makes of parts comes first, then parts, then what others made; then the oldest.
  using Work = std::tuple<int, double, size_t>;

  double next_arrival() const { return arrivals_.empty() ? kNever : arrivals_.top().first; }

  // What the arithmetic comes to next: the end of a bucket, or its own.
  double next_mark() const {
    const double next = buckets_ < bucket_times_.size() ? bucket_times_[buckets_] : kNever;
    return std::min(backward_seconds_, next);
  }

  double next_progress() const {
    if (progress_ >= backward_seconds_ || (working_ && !own_core_)) return kNever;
    return now_ + std::max(0.0, next_mark() - progress_);
  }

  // The mark itself is reached even where `now` is so large that the way to it is lost in rounding.
  void go_on(double at) {
    if (!working_ || own_core_)
      progress_ = at == next_progress() ? std::max(progress_, next_mark())
                                        : std::min(backward_seconds_, progress_ + (at - now_));
    now_ = at;
  }

  // Moves whose buckets are complete, as all are when the arithmetic has ended: their times may be
  // rounded up.
  void release() {
    constexpr double kRounding = 1e-12;
    const double complete = progress_ < backward_seconds_ ? progress_ + kRounding : kNever;
    while (buckets_ < bucket_times_.size() && bucket_times_[buckets_] <= complete)
      for (const size_t move : of_bucket_[buckets_++])
        if (states_[move].awaited == 0) enqueue(move);
  }

  void enqueue(size_t move) {
    const size_t leg = states_[move].leg;
    const bool last = leg > 0 && leg + 1 == moves_[move].legs.size();
    queue_.push({leg == 0 ? 1 : last ? 2 : 0, now_, move});
  }

  void start_work() {
    if (working_ || queue_.empty()) return;
    current_ = std::get<2>(queue_.top());
    queue_.pop();
    working_ = true;
    const Leg& leg = moves_[current_].legs[states_[current_].leg];
    played_.encode_seconds += leg.encode_seconds;
    played_.decode_seconds += leg.decode_seconds;
    work_ends_ = now_ + leg.encode_seconds + leg.decode_seconds + leg.copy_seconds;
  }

  void end_work() {
    working_ = false;
    work_ends_ = kNever;
    const Leg& leg = moves_[current_].legs[states_[current_].leg];
    const double share = leg.level == Level::kInside ? 1 : links_.inside_share;
    double arrival = now_;
    if (share < 1) arrival = carry(leg, 1 - share, links_.between, wires_[0]);
    if (share > 0) arrival = std::max(arrival, carry(leg, share, links_.inside, wires_[1]));
    arrivals_.push({arrival, current_});
  }

  // When what the leg waits for has come over this wire, which carries a share of its bytes.
  double carry(const Leg& leg, double share, const LinkSpec& link, Wire& wire) {
    const double out = link.seconds_for(share * leg.sent);
    const double in = link.seconds_for(share * leg.received);
    played_.wire_seconds += std::max(out, in);
    double arrival = now_;
    if (leg.sent > 0) wire.out_free = std::max(wire.out_free, now_) + out;
    if (leg.received > 0) {
      wire.in_free = std::max(wire.in_free, now_) + in;
      arrival = wire.in_free + link.latency_seconds;
    }
    if (leg.from_root && leg.sent > 0) arrival = wire.out_free + link.latency_seconds;
    return arrival;
  }

  void next_leg(size_t move) {
    State& state = states_[move];
    if (++state.leg < moves_[move].legs.size()) return enqueue(move);
    for (const size_t next : state.next)
      if (--states_[next].awaited == 0 && moves_[next].bucket < buckets_) enqueue(next);
  }

  const std::vector<Move>& moves_;
  const std::vector<double>& bucket_times_;
  const double backward_seconds_;
  const PlayLinks& links_;
  const bool own_core_;
  std::vector<State> states_;
  std::vector<std::vector<size_t>> of_bucket_;  // moves that it lets begin
  std::priority_queue<Work, std::vector<Work>, std::greater<>> queue_;
  std::priority_queue<std::pair<double, size_t>, std::vector<std::pair<double, size_t>>,
                      std::greater<>>
      arrivals_;  // of all that the move waits for
  Played played_;
  double now_ = 0;
  double progress_ = 0;  // of the arithmetic, in its own seconds
  size_t buckets_ = 0;   // complete
  size_t current_ = 0;
  bool working_ = false;
  double work_ends_ = kNever;
  std::array<Wire, 2> wires_;  // between groups, inside
};

}  // namespace

std::vector<double> bucket_times(const Plan& plan, const StepTimeline& timeline) {
  std::vector<double> times;
  double latest = 0;
  for (const Bucket& bucket : plan.buckets) {
    for (const Piece& piece : bucket)
      for (const size_t tensor : plan.streams[piece.stream].tensors)
        latest = std::max(latest, timeline.ready_seconds[tensor]);
    times.push_back(latest);
  }
  return times;
}

Played play_step(const std::vector<Move>& moves, const std::vector<double>& bucket_times,
                 double backward_seconds, const PlayLinks& links, bool own_core) {
  return StepPlay(moves, bucket_times, backward_seconds, links, own_core).play();
}

}  // namespace thinwire
