// gather: every rank sends its frames to every other, and adds all frames in rank order.
//
// A rank sends n - 1 copies of a message: eight bytes that say how long it is, then its frames, one
// per stream. Nobody waits for a round trip between the two. Right for payloads that cannot be
// added while compressed, at few ranks.
//
//   result = sum over r = 0..n-1 of (1/n) x decode(frame of r)
//
// Codecs that agree on a scale first (terngrad) have their rounds before that, bucket by bucket.
//
// Where a rule tolerates faulty ranks, robust_gather.cc goes on without them.
//
// Rules other than the mean are given all rows; those over whole vectors keep the rows of all
// buckets until they know the statistics of the last one.
//
// The weight goes in with each contribution, so that a sparse payload costs what it keeps and no
// sum of finite gradients overflows, unless all of them lie within a few units in the last place of
// the largest float.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "exchange/methods/bucket_method.h"
#include "exchange/methods/robust_gather.h"
#include "exchange/rules/contributions.h"
#include "exchange/rules/mean_weight.h"
#include "exchange/step/stopwatch.h"
#include "exchange/wire/rounds.h"
#include "exchange/wire/sized_message.h"

namespace thinwire {
namespace {

class Gather final : public BucketSteps {
 public:
  Gather(const MethodParts& parts, const Bucket& bucket, int tag)
      : context_(parts.context),
        tag_(tag),
        vector_rule_(parts.combine.over_vectors()),
        peers_(context_.ranks()) {
    for (const Piece& piece : bucket) {
      ActiveStream* stream = parts.streams[piece.stream].get();
      if (parts.combine.wants_rows())
        contributions_.emplace_back(parts.combine, context_.ranks(), stream->spec().count());
      streams_.push_back(stream);
      limit_ += kFrameHeaderSize + stream->codec().max_encoded_size(stream->spec());
    }
    if (agrees_on_scale()) rounds_ = std::make_unique<Rounds>(context_, streams_, false, tag);
  }

  void begin() override {
    started_ = chosen_ = false;
    next_ = 0;
    if (rounds_ == nullptr) return start();
    const Stopwatch watch(context_.compress_seconds);
    rounds_->begin();
    for (size_t i = 0; i < streams_.size(); ++i) {
      prepare(*streams_[i]);
      rounds_->join(i);
    }
  }

  bool advance() override {
    if (started_) return exchange();
    const bool moved = rounds_->advance();
    if (!rounds_->done()) return moved;
    start();
    return true;
  }

  bool done() const noexcept override {
    return started_ && next_ == peers_.size() && sent_ && (chosen_ || vector_rule_ == nullptr);
  }

  bool has_rows() const noexcept override { return started_ && next_ == peers_.size(); }

  void add_statistics(StatisticsRound& to) override {
    for (size_t i = 0; i < statistics_.size(); ++i) to.alike()[i] += statistics_[i];
  }

  void choose(std::span<const float> row_weights) override {
    combine(row_weights);
    chosen_ = true;
  }

  const Transfer* awaited() const noexcept override {
    if (!started_) return rounds_->awaited();
    if (next_ < peers_.size()) return peers_[next_].in.transfer();
    for (const Peer& peer : peers_)
      if (peer.out.transfer() != nullptr) return peer.out.transfer();
    return nullptr;
  }

 private:
  struct Peer {
    SizedSend out;
    SizedReceive in;
  };

  // Those that agree on more are encoded by each rank for itself here.
  bool agrees_on_scale() const {
    return std::any_of(streams_.begin(), streams_.end(), [](const ActiveStream* stream) {
      return stream->codec().info().agreed == Agreed::kScale;
    });
  }

  void prepare(ActiveStream& stream) {
    if (contributions_.empty())
      stream.prepare_apart(context_);
    else
      stream.prepare(context_);
  }

  // Ranks have agreed on what they need.
  void start() {
    started_ = true;
    encode();
    const bool sends = !context_.sits_out();
    context_.for_others(peers_, [&](int rank, Peer& peer) {
      if (context_.takes_part(static_cast<size_t>(rank)))
        peer.in.expect(context_.group, rank, tag_, limit_);
      if (sends) peer.out.start(context_.group, mine_.bytes().first(mine_size_), rank, tag_);
    });
  }

  bool exchange() {
    bool moved = false;
    for (size_t rank = 0; rank < peers_.size(); ++rank)
      if (rank != context_.rank()) moved |= peers_[rank].in.advance(context_);
    for (; next_ < peers_.size() && arrived(next_); ++next_) {
      if (context_.takes_part(next_)) decode(next_);
      if (next_ != context_.rank()) peers_[next_].in.release(context_);
      if (next_ + 1 == peers_.size()) complete();
      moved = true;
    }
    if (next_ == peers_.size() && !sent_) {
      sent_ = std::all_of(peers_.begin(), peers_.end(), [](Peer& peer) { return peer.out.done(); });
      if (sent_) context_.buffers.give(mine_);
      moved |= sent_;
    }
    return moved;
  }

  void encode() {
    const Stopwatch watch(context_.compress_seconds);
    mine_ = context_.buffers.take(limit_);
    const std::span<std::byte> out = mine_.bytes();
    mine_size_ = 0;
    sent_ = false;
    for (ActiveStream* stream : streams_) {
      if (rounds_ == nullptr) prepare(*stream);  // one signal after another
      if (!context_.sits_out())
        mine_size_ += stream->write_frame(context_, stream->encoder(), 0, stream->spec().count(),
                                          out.subspan(mine_size_));
      stream->begin_mean(context_);
    }
    for (size_t i = 0; i < contributions_.size(); ++i)
      contributions_[i].begin(streams_[i]->spec().count(), context_.attendance.count());
  }

  bool arrived(size_t rank) const {
    return rank == context_.rank() || !context_.takes_part(rank) || peers_[rank].in.arrived();
  }

  // A rank's own frames are read back like all others, so that the bits agree.
  void decode(size_t rank) {
    const Stopwatch watch(context_.decompress_seconds);
    const bool own = rank == context_.rank();
    std::span<const std::byte> bytes =
        own ? mine_.bytes().first(mine_size_) : peers_[rank].in.bytes();
    for (size_t i = 0; i < streams_.size(); ++i) {
      ActiveStream& stream = *streams_[i];
      const FrameHeader expected =
          context_.header(stream.codec().info().id, stream.index(), 0, stream.spec().count(), rank);
      const FrameOutcome outcome =
          contributions_.empty()
              ? stream.add_to_mean(context_, expected, bytes, mean_weight(peers_.size()))
              : add_frame(context_, expected, stream.decoder(), bytes, 1.0f,
                          contributions_[i].next());
      (void)was_added(context_, expected, outcome);
      if (outcome.size == 0) return;  // where the next frame begins is unknown
      bytes = bytes.subspan(outcome.size);
    }
    if (!bytes.empty())
      context_.faults.add(ErrorCode::kCorrupt, streams_.back()->index(), static_cast<int>(rank));
  }

  // Every rank's contributions are there. Every rank forms the same statistics of them.
  void complete() {
    if (vector_rule_ == nullptr) return combine({});
    const Stopwatch watch(context_.decompress_seconds);
    statistics_.assign(vector_rule_->statistics(context_.attendance.count()), 0.0);
    for (size_t i = 0; i < contributions_.size(); ++i) {
      streams_[i]->copy_remembered(contributions_[i].remembered());
      contributions_[i].add_statistics(statistics_);
    }
  }

  // The weights of rows are rounded, and may add up to a little more than 1.
  void combine(std::span<const float> row_weights) {
    const Stopwatch watch(context_.decompress_seconds);
    for (size_t i = 0; i < contributions_.size(); ++i) {
      streams_[i]->remember_own(contributions_[i]);
      const std::span<const float> result = contributions_[i].combine(row_weights);
      if (vector_rule_ != nullptr && !measure(result).finite)
        context_.faults.add(ErrorCode::kNonFinite, streams_[i]->index(), -1);
      std::copy(result.begin(), result.end(), streams_[i]->result().begin());
    }
  }

  StepContext& context_;
  const int tag_;
  const VectorRule* const vector_rule_;  // null: the rule is none
  std::vector<double> statistics_;       // for it, of this bucket
  bool chosen_ = false;                  // its weights are known
  std::vector<ActiveStream*> streams_;
  std::vector<Contributions> contributions_;  // by stream; none for means, which are added in place
  std::unique_ptr<Rounds> rounds_;            // null: nothing to agree on
  bool started_ = false;
  size_t limit_ = 0;  // bytes of the longest message that is possible
  Buffer mine_;
  size_t mine_size_ = 0;
  std::vector<Peer> peers_;  // by rank; this rank's own stays empty
  size_t next_ = 0;          // rank to be decoded next
  bool sent_ = false;
};

}  // namespace

extern const MethodEntry kGather{
    .name = "gather",
    .preference = 4,
    .carries = [](const Codec& /*any*/) { return true; },
    .refusal = "carries every codec, and so",
    .combines = true,
    .everybody = true,
    .in_place = true,
    .owners_remember = no_owner_remembers,
    .make =
        [](const MethodParts& parts) {
          return for_each_bucket(
              parts, [&](const Bucket& bucket, int tag) -> std::unique_ptr<BucketSteps> {
                if (parts.roster != nullptr) return make_robust_gather(parts, bucket, tag);
                return std::make_unique<Gather>(parts, bucket, tag);
              });
        }};

}  // namespace thinwire
