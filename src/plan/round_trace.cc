// TraceGroup notes messages; trace_seconds plays them, in the order in which they can start.
// SPDX-License-Identifier: Apache-2.0
#include "plan/round_trace.h"

#include <algorithm>
#include <deque>
#include <functional>
#include <map>
#include <queue>
#include <tuple>
#include <utility>

#include "core/check.h"

namespace thinwire {

// Whoever asks whether it is done waits for it.
class TraceGroup::Noted final : public Transfer {
 public:
  Noted(RankTrace& trace, size_t op) : trace_(trace), op_(op) {}
  bool done() override {
    if (!std::exchange(asked_, true))
      trace_.push_back({.kind = TraceOp::Kind::kWait, .awaited = op_});
    return true;
  }
  std::string describe() const override { return "a message that is noted only"; }

 private:
  RankTrace& trace_;
  const size_t op_;
  bool asked_ = false;
};

std::unique_ptr<Transfer> TraceGroup::note(TraceOp op) {
  trace_.push_back(op);
  return std::make_unique<Noted>(trace_, trace_.size() - 1);
}

std::unique_ptr<Transfer> TraceGroup::send(std::span<const std::byte> buffer, int to, int tag) {
  count_sent(buffer.size());
  return note({.kind = TraceOp::Kind::kSend,
               .peer = to,
               .tag = tag,
               .bytes = scale_ * static_cast<double>(buffer.size())});
}

std::unique_ptr<Transfer> TraceGroup::receive(std::span<std::byte> buffer, int from, int tag) {
  count_received(buffer.size());
  return note({.kind = TraceOp::Kind::kReceive,
               .peer = from,
               .tag = tag,
               .bytes = scale_ * static_cast<double>(buffer.size())});
}

std::unique_ptr<Group> TraceGroup::split(int /*colour*/) {
  throw Error(ErrorCode::kUnsupported, "trace: cannot be split");
}

void TraceGroup::library_all_reduce(std::span<float> /*values*/) {
  throw Error(ErrorCode::kUnsupported, "trace: no library's sum");
}

double traced_bytes(const RankTrace& trace, const std::function<bool(int to)>& counts) {
  double bytes = 0;
  for (const TraceOp& op : trace)
    if (op.kind == TraceOp::Kind::kSend && counts(op.peer)) bytes += op.bytes;
  return bytes;
}

namespace {

constexpr double kUnknown = -1;

class TracePlay {
 public:
  TracePlay(const std::vector<RankTrace>& traces, const PlanRequest& request)
      : traces_(traces), request_(request), ranks_(traces.size()) {
    for (size_t rank = 0; rank < traces.size(); ++rank)
      ranks_[rank].ended.assign(traces[rank].size(), kUnknown);
  }

  // Of the sends that ranks have come to, the one that can start first is played first.
  double run() {
    for (size_t rank = 0; rank < ranks_.size(); ++rank) advance(rank);
    while (!ready_.empty()) {
      const Posted message = ready_.top();
      ready_.pop();
      play(message);
    }
    double last = 0;
    for (size_t rank = 0; rank < ranks_.size(); ++rank) {
      THINWIRE_CHECK(ranks_[rank].next == traces_[rank].size(), "trace: ranks wait for each other");
      last = std::max(last, ranks_[rank].now);
    }
    return last;
  }

 private:
  struct RankState {
    size_t next = 0;
    double now = 0;
    std::vector<double> ended;  // by op
  };
  struct Posted {
    int from = 0, to = 0, tag = 0;
    double bytes = 0;
    double posted = 0;
    size_t op = 0;  // of the sender
    size_t number = 0;

    bool operator>(const Posted& other) const {
      return std::pair(posted, number) > std::pair(other.posted, other.number);
    }
  };
  using Way = std::tuple<int, int, int>;  // from, to, tag

  int machine_of(int rank) const { return rank / request_.per_machine; }

  // Goes on with a rank's trace until it has to wait for what has not been played yet.
  void advance(size_t rank) {
    RankState& state = ranks_[rank];
    const RankTrace& trace = traces_[rank];
    for (; state.next < trace.size(); ++state.next) {
      const TraceOp& op = trace[state.next];
      if (op.kind == TraceOp::Kind::kWait) {
        const double end = state.ended[op.awaited];
        if (end == kUnknown) return;
        state.now = std::max(state.now, end);
      } else if (op.kind == TraceOp::Kind::kSend) {
        ready_.push({.from = static_cast<int>(rank),
                     .to = op.peer,
                     .tag = op.tag,
                     .bytes = op.bytes,
                     .posted = state.now,
                     .op = state.next,
                     .number = posted_++});
      } else {
        take_or_wait(rank, op);
      }
    }
  }

  void take_or_wait(size_t rank, const TraceOp& op) {
    const Way way{op.peer, static_cast<int>(rank), op.tag};
    auto& arrived = arrived_[way];
    if (arrived.empty()) {
      expected_[way].push_back(ranks_[rank].next);
      return;
    }
    ranks_[rank].ended[ranks_[rank].next] = arrived.front();
    arrived.pop_front();
  }

  void play(const Posted& message) {
    const bool inside = machine_of(message.from) == machine_of(message.to);
    const LinkSpec& link = inside ? request_.inside : request_.link;
    double& out = inside ? inside_out_[message.from] : out_[machine_of(message.from)];
    double& in = inside ? inside_in_[message.to] : in_[machine_of(message.to)];
    const double begin = std::max({message.posted, out, in});
    out = in = begin + link.seconds_for(message.bytes);
    ranks_[static_cast<size_t>(message.from)].ended[message.op] = out;
    const double arrival = out + link.latency_seconds;
    const Way way{message.from, message.to, message.tag};
    auto& expected = expected_[way];
    if (expected.empty()) {
      arrived_[way].push_back(arrival);
    } else {
      ranks_[static_cast<size_t>(message.to)].ended[expected.front()] = arrival;
      expected.pop_front();
    }
    advance(static_cast<size_t>(message.from));
    advance(static_cast<size_t>(message.to));
  }

  const std::vector<RankTrace>& traces_;
  const PlanRequest& request_;
  std::vector<RankState> ranks_;
  std::priority_queue<Posted, std::vector<Posted>, std::greater<>> ready_;
  std::map<Way, std::deque<double>> arrived_;   // times, nobody having asked for them yet
  std::map<Way, std::deque<size_t>> expected_;  // ops of the receiver
  std::map<int, double> out_, in_;              // when a machine's link is free
  std::map<int, double> inside_out_, inside_in_;
  size_t posted_ = 0;
};

}  // namespace

double trace_seconds(const std::vector<RankTrace>& traces, const PlanRequest& request) {
  return TracePlay(traces, request).run();
}

}  // namespace thinwire
