// dense: shards go to their owners; owners add in rank order and hand out the mean.
//
// The bucket's values, one piece after another, are cut into n equal ranges, the shards. A rank
// sends shard j to rank j; rank j adds what it got,
//
//   sum = x_0 + x_1 + ... + x_(n-1)  in fp32,   mean = sum x (1/n),
//
// encodes the mean and sends it to all; or keeps it, where results are shards. Every rank, the
// owner too, uses what that decodes to. A rank sends 2 (n-1)/n of a payload, plus frames: one per
// piece and shard that it touches. All sizes are known beforehand, which takes a codec of fixed
// size; the sum takes a linear one.
//
// Sums start from -0.0, the one value that adds to any other without changing a bit of it: one rank
// with codec fp32 gets back exactly what it gave.
// SPDX-License-Identifier: Apache-2.0
#include "exchange/methods/dense.h"

#include <algorithm>

#include "exchange/owner/owner_sum.h"
#include "exchange/owner/shard.h"
#include "exchange/step/stopwatch.h"
#include "exchange/wire/pending.h"

namespace thinwire {
namespace {

// Coders of all buckets, and sums that no bucket is using: the one that was given back last is
// still in cache.
class SumPool {
 public:
  SumPool(const MethodParts& parts, std::span<const size_t> owner_of)
      : context_(parts.context), rule_(parts.combine), owner_of_(owner_of.begin(), owner_of.end()) {
    if (owner_of_.empty()) owner_of_ = owners_of(parts.streams);
  }

  std::vector<Chunk> cut(const Streams& streams, const Bucket& bucket) {
    const size_t n = context_.ranks();
    std::vector<Chunk> shards = owner_of_.empty()
                                    ? make_shards(streams, bucket, n, coders_)
                                    : deal_out(streams, bucket, n, owner_of_, coders_);
    const Chunk& own = shards[context_.rank()];
    most_.count = std::max(most_.count, own.count);
    most_.size = std::max(most_.size, own.size);
    most_.parts = std::max(most_.parts, own.parts.size());
    return shards;
  }

  std::unique_ptr<OwnerSum> take() {
    if (free_.empty())
      return std::make_unique<OwnerSum>(context_, rule_, OwnerSum::Own::kCoded, most_,
                                        std::span<OwnerMemory* const>());
    std::unique_ptr<OwnerSum> sum = std::move(free_.back());
    free_.pop_back();
    return sum;
  }
  void give(std::unique_ptr<OwnerSum> sum) { free_.push_back(std::move(sum)); }

 private:
  StepContext& context_;
  const Combine& rule_;
  std::vector<size_t> owner_of_;  // by stream; empty: streams are cut into shards
  Coders coders_;
  OwnerSum::Most most_;
  std::vector<std::unique_ptr<OwnerSum>> free_;
};

class Dense final : public BucketSteps {
 public:
  Dense(const MethodParts& parts, std::shared_ptr<SumPool> pool, const Bucket& bucket, int tag)
      : context_(parts.context),
        tag_(tag),
        shards_only_(parts.shards),
        pool_(std::move(pool)),
        shards_(pool_->cut(parts.streams, bucket)),
        peers_(context_.ranks()) {
    for (const Piece& piece : bucket) streams_.push_back(parts.streams[piece.stream].get());
  }

  void begin() override {
    encode();
    context_.for_others(peers_, [&](int rank, Peer& peer) {
      peer.decoded = shards_only_;
      if (context_.takes_part(static_cast<size_t>(rank))) {
        peer.part_in = context_.buffers.take(own().size);
        receive(peer.receives_part, peer.part_in, rank, tag_);
      }
      if (!shards_only_) {
        peer.mean_in = context_.buffers.take(shards_[static_cast<size_t>(rank)].size);
        receive(peer.receives_mean, peer.mean_in, rank, tag_ + 1);
      }
      send(peer.sends_part, peer.part_out, rank, tag_);
    });
    next_ = 0;
    decoded_ = shards_only_ ? peers_.size() - 1 : 0;
    sent_ = false;
  }

  bool advance() override {
    bool moved = false;
    for (; next_ < peers_.size() && part_arrived(next_); moved = true) {
      if (next_ == 0) begin_sum();
      if (context_.takes_part(next_)) add(next_);
      if (++next_ == peers_.size()) share();
    }
    context_.for_others(peers_, [&](int rank, Peer& peer) {
      if (peer.decoded || !peer.receives_mean.done()) return;
      take_mean(static_cast<size_t>(rank));
      context_.buffers.give(peer.mean_in);
      moved = true;
    });
    if (!sent_ && all_sent() && decoded_ == peers_.size()) {
      context_.buffers.give(mean_out_);
      sent_ = moved = true;
    }
    return moved;
  }

  bool done() const noexcept override { return decoded_ == peers_.size() && sent_; }

  const Transfer* awaited() const noexcept override {
    if (next_ < peers_.size()) return peers_[next_].receives_part.transfer();
    for (const Peer& peer : peers_)
      for (const Pending* one : {&peer.receives_mean, &peer.sends_part, &peer.sends_mean})
        if (one->transfer() != nullptr) return one->transfer();
    return nullptr;
  }

  bool awaits_owner() const noexcept override { return next_ == peers_.size(); }

  void add_owned(size_t rank, std::vector<Piece>& to) const override {
    for (const ChunkPart& part : shards_[rank].parts)
      to.push_back({part.stream->index(), part.range.begin, part.range.count});
  }

 private:
  struct Peer {
    Buffer part_out;  // this rank's part of the peer's shard
    Buffer part_in;   // the peer's part of this rank's shard
    Buffer mean_in;   // of the peer's shard
    Pending sends_part, receives_part, sends_mean, receives_mean;
    bool decoded = false;
  };

  const Chunk& own() const noexcept { return shards_[context_.rank()]; }

  // A shard without values has no messages.
  void send(Pending& transfer, const Buffer& from, int rank, int tag) {
    if (!from.bytes().empty()) transfer.set(context_.group.send(from.bytes(), rank, tag));
  }
  void receive(Pending& transfer, Buffer& to, int rank, int tag) {
    if (!to.bytes().empty()) transfer.set(context_.group.receive(to.bytes(), rank, tag));
  }

  // Parts that have left need their memory no longer.
  bool all_sent() {
    bool all = true;
    context_.for_others(peers_, [&](int /*rank*/, Peer& peer) {
      if (peer.sends_part.done()) context_.buffers.give(peer.part_out);
      all &= peer.sends_part.done() && peer.sends_mean.done();
    });
    return all;
  }

  void encode() {
    {
      const Stopwatch watch(context_.compress_seconds);
      for (ActiveStream* stream : streams_) stream->prepare(context_);
    }
    if (context_.sits_out()) return;
    for (size_t rank = 0; rank < shards_.size(); ++rank) {
      if (rank == context_.rank()) continue;
      peers_[rank].part_out = context_.buffers.take(shards_[rank].size);
      write_contribution(context_, shards_[rank], peers_[rank].part_out.bytes());
    }
  }

  bool part_arrived(size_t rank) {
    return rank == context_.rank() || peers_[rank].receives_part.done();
  }

  void begin_sum() {
    sum_ = pool_->take();
    sum_->begin(own());
  }

  void add(size_t rank) {
    if (rank == context_.rank()) return sum_->add_own();
    sum_->add(rank, peers_[rank].part_in.bytes());
    context_.buffers.give(peers_[rank].part_in);
  }

  void share() {
    ++decoded_;
    if (shards_only_) {
      sum_->keep_result();
      pool_->give(std::move(sum_));
      return;
    }
    mean_out_ = context_.buffers.take(own().size);
    sum_->write_result(mean_out_.bytes());
    context_.for_others(
        peers_, [&](int rank, Peer& peer) { send(peer.sends_mean, mean_out_, rank, tag_ + 1); });
    sum_->take_own_result(mean_out_.bytes());
    pool_->give(std::move(sum_));
  }

  void take_mean(size_t owner) {
    take_result(context_, shards_[owner], peers_[owner].mean_in.bytes(), owner);
    peers_[owner].decoded = true;
    ++decoded_;
  }

  StepContext& context_;
  const int tag_;
  const bool shards_only_;
  const std::shared_ptr<SumPool> pool_;
  std::vector<ActiveStream*> streams_;
  const std::vector<Chunk> shards_;  // by owner
  std::unique_ptr<OwnerSum> sum_;    // of this rank's shard, while it is being added
  Buffer mean_out_;                  // of this rank's shard
  std::vector<Peer> peers_;          // by rank; this rank's own stays empty
  size_t next_ = 0;                  // rank to be added next
  size_t decoded_ = 0;               // shards whose mean is in place
  bool sent_ = false;
};

}  // namespace

std::vector<std::unique_ptr<BucketSteps>> dense_buckets(const MethodParts& parts,
                                                        std::span<const size_t> owner_of) {
  const auto pool = std::make_shared<SumPool>(parts, owner_of);
  return steps_of(parts, [&](const Bucket& bucket, int tag) {
    return std::make_unique<Dense>(parts, pool, bucket, tag);
  });
}

extern const MethodEntry kDense{
    .name = "dense",
    .preference = 3,
    .carries = [](const Codec& codec) { return codec.info().linear && codec.info().fixed_size; },
    .refusal = "cannot add payloads of",
    .cuts_anywhere = true,
    .in_place = true,
    .leaves_shards = true,
    .owners_remember = no_owner_remembers,
    .make = [](const MethodParts& parts) -> std::unique_ptr<Method> {
      return std::make_unique<BucketMethod>(dense_buckets(parts, {}));
    }};

}  // namespace thinwire
