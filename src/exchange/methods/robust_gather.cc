// RobustGather: gathers the frames of all ranks, as gather does, without depending on any of them.
//
// A frame is decoded into the row of its sender when it arrives. One that is missing, damaged or
// not the expected one is noted in the roster, and the others go on. Nothing is combined before all
// ranks have agreed whose rows count (account_rounds.h): each row that combine_only leaves was then
// received alike by all ranks.
//
// A receive that was given up at the deadline stays posted. The frames of an earlier step that it
// brings are passed over, one for each step in which the rank was missed; other frames of another
// step do not count.
// SPDX-License-Identifier: Apache-2.0
#include "exchange/methods/robust_gather.h"

#include <algorithm>

#include "exchange/faulty/patient_outbox.h"
#include "exchange/faulty/roster.h"
#include "exchange/rules/contributions.h"
#include "exchange/step/stopwatch.h"
#include "exchange/wire/sized_message.h"

namespace thinwire {
namespace {

class RobustGather final : public BucketSteps {
 public:
  RobustGather(const MethodParts& parts, const Bucket& bucket, int tag)
      : context_(parts.context),
        roster_(*parts.roster),
        tag_(tag),
        outbox_(context_.group, roster_),
        peers_(context_.ranks()) {
    for (const Piece& piece : bucket) {
      ActiveStream* stream = parts.streams[piece.stream].get();
      contributions_.emplace_back(parts.combine, context_.ranks(), stream->spec().count());
      streams_.push_back(stream);
      limit_ += kFrameHeaderSize + stream->codec().max_encoded_size(stream->spec());
    }
  }

  void begin() override {
    outbox_.set_under_way(true);
    for (Peer& peer : peers_) peer.closed = false;
    peers_[context_.rank()].closed = true;
    for (size_t i = 0; i < streams_.size(); ++i) {
      const Stopwatch watch(context_.compress_seconds);
      streams_[i]->prepare(context_);
      contributions_[i].begin(streams_[i]->spec().count(), context_.ranks());
    }
    for (size_t rank = 0; rank < peers_.size(); ++rank) {
      if (roster_.is_lost(rank)) peers_[rank].closed = true;
      if (!peers_[rank].closed) expect(rank);
    }
    send();
  }

  bool advance() override {
    bool moved = false, waits = false;
    for (size_t rank = 0; rank < peers_.size(); ++rank) {
      if (peers_[rank].closed) continue;
      moved |= listen(rank);
      waits |= !peers_[rank].closed && roster_.awaits_values(rank);
    }
    outbox_.tidy(context_.buffers);
    if (waits) return moved;
    for (size_t rank = 0; rank < peers_.size(); ++rank)
      if (!peers_[rank].closed) miss(rank);
    return moved;
  }

  bool done() const noexcept override {
    return std::all_of(peers_.begin(), peers_.end(), [](const Peer& peer) { return peer.closed; });
  }

  void combine_only(const std::vector<bool>& ranks, const Combine& rule) override {
    const Stopwatch watch(context_.decompress_seconds);
    for (Contributions& of_stream : contributions_) of_stream.combine_only(ranks, rule);
    over_vectors_ = rule.over_vectors();
    counted_ = static_cast<size_t>(std::count(ranks.begin(), ranks.end(), true));
  }

  void add_statistics(StatisticsRound& to) override {
    const Stopwatch watch(context_.decompress_seconds);
    std::vector<double> statistics(over_vectors_->statistics(counted_));
    for (size_t i = 0; i < contributions_.size(); ++i) {
      streams_[i]->copy_remembered(contributions_[i].remembered());
      contributions_[i].add_statistics(statistics);
    }
    for (size_t i = 0; i < statistics.size(); ++i) to.alike()[i] += statistics[i];
  }

  void choose(std::span<const float> row_weights) override {
    const Stopwatch watch(context_.decompress_seconds);
    for (size_t i = 0; i < contributions_.size(); ++i) {
      streams_[i]->remember_own(contributions_[i]);
      const std::span<const float> result = contributions_[i].combine(row_weights);
      if (!measure(result).finite)
        context_.faults.add(ErrorCode::kNonFinite, streams_[i]->index(), -1);
      std::copy(result.begin(), result.end(), streams_[i]->result().begin());
    }
  }

  void end(bool /*skipped*/) noexcept override { outbox_.set_under_way(false); }

  const Transfer* awaited() const noexcept override {
    for (const Peer& peer : peers_)
      if (!peer.closed) return peer.in.transfer();
    return nullptr;
  }

 private:
  struct Peer {
    SizedReceive in;
    bool expected = false;  // a message is under way, or may be
    bool closed = false;    // nothing more of it is awaited in this step
    size_t missed = 0;      // messages of earlier steps that have not come yet
  };

  void expect(size_t rank) {
    Peer& peer = peers_[rank];
    if (!peer.expected) peer.in.expect(context_.group, static_cast<int>(rank), tag_, limit_);
    peer.expected = true;
  }

  void send() {
    Buffer message = context_.buffers.take(limit_);
    size_t size = 0;
    {
      const Stopwatch watch(context_.compress_seconds);
      for (ActiveStream* stream : streams_)
        size += stream->write_frame(context_, stream->encoder(), 0, stream->spec().count(),
                                    message.bytes().subspan(size));
    }
    take(context_.rank(), message.bytes().first(size));
    outbox_.send_sized(std::move(message), size, tag_);
  }

  // Whether it got anywhere.
  bool listen(size_t rank) {
    Peer& peer = peers_[rank];
    try {
      if (!peer.in.advance(context_)) return false;
    } catch (
        const Error& error) {  // the rank is lost, or nobody knows where its next message begins
      const bool malformed = error.code() != ErrorCode::kPeerLost;
      if (malformed) roster_.note(rank, LeftOutFor::kCorruption, streams_.front()->index());
      peer.closed = true;
      roster_.lose(rank, error);
      return true;
    }
    if (!peer.in.arrived()) return true;
    peer.expected = false;
    if (peer.missed > 0 && is_late(peer.in.bytes())) {
      --peer.missed;
      peer.in.release(context_);
      expect(rank);
      return true;
    }
    take(rank, peer.in.bytes());
    peer.in.release(context_);
    peer.closed = true;
    return true;
  }

  void miss(size_t rank) {
    ++peers_[rank].missed;
    peers_[rank].closed = true;
    roster_.note(rank, LeftOutFor::kSilence);
  }

  bool is_late(std::span<const std::byte> message) const {
    Result<Frame> first = read_frame(message);
    return first && first.value().header.step < context_.call.step;
  }

  // A rank's own frames are read back like all others, so that the bits agree.
  void take(size_t rank, std::span<const std::byte> message) {
    const Stopwatch watch(context_.decompress_seconds);
    roster_.heard(rank, tag_, message);
    for (size_t i = 0; i < streams_.size(); ++i) {
      ActiveStream& stream = *streams_[i];
      const FrameHeader expected =
          context_.header(stream.codec().info().id, stream.index(), 0, stream.spec().count(), rank);
      const FrameOutcome outcome = add_frame(context_, expected, stream.decoder(), message, 1.0f,
                                             contributions_[i].row(rank));
      if (outcome.kind != FrameOutcome::Kind::kAdded)
        roster_.note(rank,
                     outcome.kind == FrameOutcome::Kind::kFlagged ? LeftOutFor::kNonFinite
                                                                  : LeftOutFor::kCorruption,
                     stream.index());
      if (outcome.size == 0) return;  // where the next frame begins is unknown
      message = message.subspan(outcome.size);
    }
    if (!message.empty()) roster_.note(rank, LeftOutFor::kCorruption, streams_.back()->index());
  }

  StepContext& context_;
  Roster& roster_;
  const int tag_;
  std::vector<ActiveStream*> streams_;
  std::vector<Contributions> contributions_;  // by stream
  size_t limit_ = 0;                          // bytes of the longest message that is possible
  PatientOutbox outbox_;
  std::vector<Peer> peers_;  // by rank; this rank's own is closed

  const VectorRule* over_vectors_ = nullptr;  // the rule of this step, if it is one
  size_t counted_ = 0;                        // rows
};

}  // namespace

std::unique_ptr<BucketSteps> make_robust_gather(const MethodParts& parts, const Bucket& bucket,
                                                int tag) {
  return std::make_unique<RobustGather>(parts, bucket, tag);
}

}  // namespace thinwire
