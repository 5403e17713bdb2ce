// An event simulation of stages: a thread that computes, one that sends, one that receives.
// SPDX-License-Identifier: Apache-2.0
#include "plan/pipeline_play.h"

#include <algorithm>
#include <functional>
#include <map>
#include <queue>
#include <utility>

#include "core/check.h"

namespace thinwire {
namespace {

constexpr double kLengthBytes = 8;  // in front of each message
constexpr double kUnknown = -1;

class StagePlay {
 public:
  StagePlay(const PipelinePlay& pipeline, const PlanRequest& request)
      : pipeline_(pipeline), request_(request), ranks_(pipeline.stages.size() * pipeline.replicas) {
    for (size_t rank = 0; rank < ranks_.size(); ++rank) {
      Rank& one = ranks_[rank];
      one.operations =
          stage_operations(pipeline.order, stages(), rank % stages(), pipeline.micro_batches);
      one.inputs.assign(one.operations.size(), kUnknown);
      one.arrived.assign(2 * pipeline.micro_batches, kUnknown);
    }
  }

  // Messages that can leave are sent in the order in which they can.
  PlayedPipeline run() {
    for (size_t rank = 0; rank < ranks_.size(); ++rank) compute(rank);
    while (!ready_.empty()) {
      const Message message = ready_.top();
      ready_.pop();
      send(message);
    }
    PlayedPipeline played;
    double busy = 0;
    for (const Rank& rank : ranks_) {
      THINWIRE_CHECK(rank.next == rank.operations.size(), "plan: stages wait for each other");
      played.seconds =
          std::max({played.seconds, rank.free_at, rank.sender_free, rank.receiver_free});
      played.wire_seconds = std::max(played.wire_seconds, rank.wire);
      busy += rank.busy;
    }
    if (played.seconds > 0)
      played.idle_share = 1 - busy / (played.seconds * static_cast<double>(ranks_.size()));
    return played;
  }

 private:
  struct Rank {
    std::vector<PipelineOp> operations;
    size_t next = 0;
    std::vector<double> inputs;  // when that of each operation has been decoded
    size_t received = 0;         // operations whose input has been
    double free_at = 0;          // of the thread that computes
    double receiver_free = 0, sender_free = 0;
    double busy = 0, wire = 0;
    std::vector<double> arrived;  // by micro-batch, forward ones first; kUnknown: not yet
    std::queue<std::pair<PipelineOp, double>> to_send;  // and since when
    bool sending = false;
  };
  struct Message {
    double at = 0;  // when its sender has encoded it
    size_t number = 0, rank = 0;
    PipelineOp op;

    bool operator>(const Message& other) const {
      return std::pair(at, number) > std::pair(other.at, other.number);
    }
  };

  size_t stages() const { return pipeline_.stages.size(); }
  size_t stage_of(size_t rank) const { return rank % stages(); }
  // Whether a message belongs to the operation, and whether the operation waits for it.
  bool receives(size_t rank, const PipelineOp& op) const {
    return op.backward ? stage_of(rank) + 1 < stages() : stage_of(rank) > 0;
  }
  bool needs_input(size_t rank, const PipelineOp& op) const {
    return pipeline_.order != PipelineOrder::kDecoupled && receives(rank, op);
  }
  bool makes_message(size_t rank, const PipelineOp& op) const {
    return op.backward ? stage_of(rank) > 0 : stage_of(rank) + 1 < stages();
  }
  // The message that an operation of this rank makes.
  const BoundaryCost& cost_out(size_t rank, const PipelineOp& op) const {
    return op.backward ? pipeline_.backward[stage_of(rank) - 1] : pipeline_.forward[stage_of(rank)];
  }
  const BoundaryCost& cost_in(size_t rank, const PipelineOp& op) const {
    return op.backward ? pipeline_.backward[stage_of(rank)] : pipeline_.forward[stage_of(rank) - 1];
  }

  // Goes on with a rank's operations until one has to wait for what has not arrived yet.
  void compute(size_t number) {
    Rank& rank = ranks_[number];
    const StageTimes& times = pipeline_.stages[stage_of(number)];
    for (; rank.next < rank.operations.size(); ++rank.next) {
      const PipelineOp& op = rank.operations[rank.next];
      const double input = needs_input(number, op) ? rank.inputs[rank.next] : 0;
      if (input == kUnknown) return;
      const double work = op.backward ? times.backward : times.forward;
      rank.busy += work;
      rank.free_at = std::max(rank.free_at, input) + work;
      if (!request_.own_core && receives(number, op))
        rank.free_at += cost_in(number, op).decode_seconds;
      if (!makes_message(number, op)) continue;
      if (!request_.own_core) rank.free_at += cost_out(number, op).encode_seconds;
      rank.to_send.emplace(op, rank.free_at);
      encode_next(number);
    }
  }

  // A rank's sender encodes a message when the one before has left.
  void encode_next(size_t number) {
    Rank& rank = ranks_[number];
    if (rank.sending || rank.to_send.empty()) return;
    const auto [op, since] = rank.to_send.front();
    rank.to_send.pop();
    rank.sending = true;
    const double coding = request_.own_core ? cost_out(number, op).encode_seconds : 0;
    ready_.push({.at = std::max(since, rank.sender_free) + coding,
                 .number = posted_++,
                 .rank = number,
                 .op = op});
  }

  int machine_of(size_t rank) const { return static_cast<int>(rank) / request_.per_machine; }

  void send(const Message& message) {
    const size_t from = message.rank;
    const size_t to = message.op.backward ? from - 1 : from + 1;
    const bool inside = machine_of(from) == machine_of(to);
    const LinkSpec& link = inside ? request_.inside : request_.link;
    double& out = inside ? inside_out_[from] : out_[machine_of(from)];
    double& in = inside ? inside_in_[to] : in_[machine_of(to)];
    const double wire = link.seconds_for(cost_out(from, message.op).message_bytes + kLengthBytes);
    const double begin = std::max({message.at, out, in});
    out = in = begin + wire;
    Rank& sender = ranks_[from];
    sender.wire += wire;
    sender.sender_free = out;
    sender.sending = false;
    arrive(to, message.op, out + link.latency_seconds);
    encode_next(from);
    compute(to);
  }

  // Inputs are received and decoded in the order of operations.
  void arrive(size_t number, const PipelineOp& op, double when) {
    Rank& rank = ranks_[number];
    const auto slot = [&](const PipelineOp& of) {
      return of.micro_batch + (of.backward ? pipeline_.micro_batches : 0);
    };
    rank.arrived[slot(op)] = when;
    for (; rank.received < rank.operations.size(); ++rank.received) {
      const PipelineOp& next = rank.operations[rank.received];
      if (!receives(number, next)) continue;
      const double arrival = rank.arrived[slot(next)];
      if (arrival == kUnknown) return;
      const double decode = request_.own_core ? cost_in(number, next).decode_seconds : 0;
      rank.receiver_free = std::max(rank.receiver_free, arrival) + decode;
      rank.inputs[rank.received] = rank.receiver_free;
    }
  }

  const PipelinePlay& pipeline_;
  const PlanRequest& request_;
  std::vector<Rank> ranks_;
  std::priority_queue<Message, std::vector<Message>, std::greater<>> ready_;
  size_t posted_ = 0;
  std::map<int, double> out_, in_;  // when a machine's link is free
  std::map<size_t, double> inside_out_, inside_in_;
};

}  // namespace

PlayedPipeline play_pipeline(const PipelinePlay& pipeline, const PlanRequest& request) {
  return StagePlay(pipeline, request).run();
}

}  // namespace thinwire
