// scatter-reduce: chunks go to owners, which add, encode again and hand out, all at once.
//
// Every stream is cut at block borders into n shards, one owner each, and every shard into chunks
// (chunk_plan.h). A rank encodes the chunks that others own and sends each at once. The owner adds
// what it got, in rank order, its own values as they are,
//
//   sum = x_0 + x_1 + ... + x_(n-1)  in fp32,   mean = sum x (1/n)  + what it owes,
//
// encodes the mean and sends it to all. Every rank, the owner too, uses what that decodes to. So a
// rank sends what it sends in dense, 2 (n-1)/n of a payload, with any codec that treats blocks by
// themselves; and as a chunk takes tens of microseconds to encode, add or decode, the wire carries
// others meanwhile. Memory is read and written once on the way out, and written once on the way in:
// the rest happens to chunks in cache.
//
// The chunks of an owner travel in one order, the same on all ranks and through all buckets. A rank
// is at most a window of chunks ahead of the means that it has from an owner: that bounds what is
// on its way, however slow a rank is, and cannot block, since the first chunk that an owner lacks
// may always be sent.
//
// With a rule over whole vectors (vector_rule.h) owners keep all contributions to their chunks, n
// rows of their shards, until the statistics of the last bucket tell the weights of rows. Up to
// then they answer with acknowledgements, as where results are shards. Then they hand out all
// results. A rank's own contribution goes through the codec, as all others do.
//
// Sums start from -0.0, as in dense.cc.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>

#include "comm/other_ranks.h"
#include "comm/sealed_words.h"
#include "exchange/methods/method.h"
#include "exchange/owner/chunk_plan.h"
#include "exchange/owner/owner_sum.h"
#include "exchange/state/owner_memory.h"
#include "exchange/state/stream_keys.h"
#include "exchange/step/stopwatch.h"
#include "exchange/wire/lane.h"
#include "exchange/wire/pending.h"
#include "stream/memory_slot.h"

namespace thinwire {
namespace {

// Of biased codecs: unbiased ones leave errors whose mean is 0.
bool owners_remember(const Codec& codec, bool keeps_rest) {
  return !codec.info().unbiased && keeps_rest;
}

class ScatterReduce final : public Method {
 public:
  explicit ScatterReduce(const MethodParts& parts)
      : context_(parts.context),
        plan_(parts.streams, parts.buckets, context_.ranks(), parts.chunk_values),
        own_(plan_.route(context_.rank())),
        window_(window_of(context_.ranks())),
        shards_only_(parts.shards),
        vector_rule_(parts.combine.over_vectors()),
        means_out_(window_, reply_size()),
        memories_(parts.streams.size()),
        part_tag_(parts.first_tag),
        mean_tag_(parts.first_tag + 1) {
    for (const Bucket& bucket : parts.buckets) {
      members_.emplace_back();
      for (const Piece& piece : bucket) {
        ActiveStream& stream = *parts.streams[piece.stream];
        members_.back().push_back(&stream);
        memories_[piece.stream] = memory_of(stream, parts.store);
        const Range shard = plan_.shard(stream, context_.rank());
        stream.set_own_part(shard.begin, shard.count);
      }
    }
    make_sums(parts.combine);
    for_other_ranks(context_.group, [this](size_t rank) {
      lanes_.emplace_back(rank, window_, plan_.max_size(), reply_size());
    });
  }

  void begin(size_t bucket) override {
    if (bucket == 0) begin_step();
    const Stopwatch watch(context_.compress_seconds);
    for (ActiveStream* stream : members_[bucket]) stream->prepare_parts(context_);
    begun_buckets_ = bucket + 1;
  }

  // At most one chunk of each kind for each peer, so that none waits long for the others.
  bool advance() override {
    // Does one piece of the owner's work: hands out a result only if there was nothing to add.
    bool moved = reduce();
    if (!moved) moved = hand_out();
    for (Lane& lane : lanes_) moved |= send_part(lane);
    for (Lane& lane : lanes_) moved |= acks_only() ? take_ack(lane) : take_mean(lane);
    while (finished_buckets_ < begun_buckets_ && finished(finished_buckets_)) {
      ++finished_buckets_;
      moved = true;
    }
    return moved;
  }

  bool done() const noexcept override { return finished_buckets_ == begun_buckets_; }

  // A rank for whose parts nobody waits, because it sits out, still waits for all acknowledgements
  // of owners.
  bool has_rows() const noexcept override {
    return begun_buckets_ == members_.size() && summed_chunks_ == own_.chunks.size() &&
           std::all_of(lanes_.begin(), lanes_.end(), [&](const Lane& lane) {
             return lane.parts_sent == route(lane).chunks.size();
           });
  }

  void add_statistics(StatisticsRound& to) override {
    for (size_t i = 0; i < statistics_.size(); ++i) to.own()[i] += statistics_[i];
  }

  // All parts of this step have arrived where they belong, and all acknowledgements: without the
  // last one the last part would not have left.
  void choose(std::span<const float> row_weights) override {
    row_weights_ = row_weights;
    chosen_ = true;
    if (shards_only_) return;
    for (Lane& lane : lanes_) {
      lane.answered = 0;
      for (size_t number = 0; number < window_; ++number) expect_mean(lane, number);
    }
  }

  void end(bool skipped) noexcept override {
    for (OwnerMemory* memory : memories_)
      if (memory != nullptr) skipped ? memory->rollback() : memory->commit();
  }

  std::vector<Piece> owned(size_t rank) const override {
    std::vector<Piece> pieces;
    for (const Chunk& chunk : plan_.route(rank).chunks)
      for (const ChunkPart& part : chunk.parts)
        pieces.push_back({part.stream->index(), part.range.begin, part.range.count});
    return pieces;
  }

  // The rank whose part is next in the sum, if one is awaited; then means, then sends.
  const Transfer* awaited() const noexcept override {
    if (summed_chunks_ < own_.chunks.size() && next_rank_ < context_.ranks() &&
        next_rank_ != context_.rank())
      return lanes_[lane_index(next_rank_)].parts_in.busy(summed_chunks_);
    for (const Lane& lane : lanes_)
      for (const Ring* ring : {&lane.means_in, &lane.parts_out, &lane.means_out})
        if (const Transfer* transfer = ring->busy(); transfer != nullptr) return transfer;
    return nullptr;
  }

  bool awaits_owner() const noexcept override { return summed_chunks_ == own_.chunks.size(); }

 private:
  OwnerMemory* memory_of(const ActiveStream& stream, Store& store) const {
    if (shards_only_ || !owners_remember(stream.codec(), stream.keeps_rest())) return nullptr;
    const size_t count = stream.spec().count();
    const Range shard = plan_.shard(stream, context_.rank());
    auto& memory = open_memory<OwnerMemory>(
        store, owner_key(stream.spec().name), "residual of " + std::to_string(count),
        [&] { return std::make_unique<OwnerMemory>(count, shard, context_.ranks()); });
    memory.move_to(shard);
    return &memory;
  }

  // One for the chunk under way; for a VectorRule one for each chunk, which keeps its rows.
  void make_sums(const Combine& rule) {
    if (vector_rule_ == nullptr) {
      const OwnerSum::Most most{
          .count = plan_.max_count(), .size = plan_.max_size(), .parts = plan_.max_parts()};
      sums_.emplace_back(context_, rule, OwnerSum::Own::kAsItIs, most, memories_);
      return;
    }
    sums_.reserve(own_.chunks.size());
    for (const Chunk& chunk : own_.chunks) {
      const OwnerSum::Most most{
          .count = chunk.count, .size = chunk.size, .parts = chunk.parts.size()};
      sums_.emplace_back(context_, rule, OwnerSum::Own::kCoded, most, memories_);
    }
  }
  OwnerSum& sum_of(size_t number) { return sums_[vector_rule_ != nullptr ? number : 0]; }

  void begin_step() {
    begun_buckets_ = finished_buckets_ = summed_chunks_ = given_chunks_ = next_rank_ = 0;
    chosen_ = false;
    if (vector_rule_ != nullptr)
      statistics_.assign(vector_rule_->statistics(context_.attendance.count()), 0.0);
    for (Lane& lane : lanes_) {
      lane.parts_sent = lane.answered = 0;
      for (size_t number = 0; number < window_; ++number) {
        expect_part(lane, number);
        if (!acks_only()) expect_mean(lane, number);
      }
      if (acks_only()) expect_ack(lane);
    }
  }

  const Route& route(const Lane& lane) const noexcept { return plan_.route(lane.rank); }
  size_t lane_index(size_t rank) const noexcept {
    return (rank + context_.ranks() - context_.rank()) % context_.ranks() - 1;
  }

  // Receives are under way for a whole window, as far as there are chunks.
  void expect_part(Lane& lane, size_t number) {
    if (number >= own_.chunks.size() || !context_.takes_part(lane.rank)) return;
    const auto to = lane.parts_in.bytes(number, own_.chunks[number].size);
    lane.parts_in.transfer(number).set(
        context_.group.receive(to, static_cast<int>(lane.rank), part_tag_));
  }
  void expect_mean(Lane& lane, size_t number) {
    if (number >= route(lane).chunks.size()) return;
    const auto to = lane.means_in.bytes(number, route(lane).chunks[number].size);
    lane.means_in.transfer(number).set(
        context_.group.receive(to, static_cast<int>(lane.rank), mean_tag_));
  }

  // Where nothing is handed out, or not yet, an owner says instead how far it has come: one
  // acknowledgement for every half of a window, as long as there are chunks that may not be sent
  // without it. Streams of less than a window of chunks need none. With the acknowledgement before
  // the one of `chunks` a rank may send up to chunk `chunks - half() + window_`.
  bool acks_only() const noexcept { return shards_only_ || (vector_rule_ != nullptr && !chosen_); }
  size_t half() const noexcept { return window_ / 2; }
  size_t reply_size() const noexcept {
    return shards_only_ ? sizeof(SealedWord) : plan_.max_size();
  }
  bool needs_ack(const Route& of_owner, size_t chunks) const noexcept {
    return chunks > 0 && chunks % half() == 0 && of_owner.chunks.size() > chunks - half() + window_;
  }
  SealedWord ack_of(size_t owner, size_t chunks) const noexcept {
    return seal_word(chunks, context_.call.step, static_cast<int>(owner));
  }
  void expect_ack(Lane& lane) {
    if (!needs_ack(route(lane), lane.answered + half())) return;
    const auto to = lane.means_in.bytes(0, sizeof(SealedWord));
    lane.means_in.transfer(0).set(
        context_.group.receive(to, static_cast<int>(lane.rank), mean_tag_));
  }
  bool take_ack(Lane& lane) {
    const size_t chunks = lane.answered + half();
    if (!needs_ack(route(lane), chunks) || chunks > lane.parts_sent) return false;
    if (!lane.means_in.transfer(0).done()) return false;
    const SealedWord expected = ack_of(lane.rank, chunks);
    if (std::memcmp(lane.means_in.bytes(0, sizeof expected).data(), &expected, sizeof expected) !=
        0)
      context_.faults.add(ErrorCode::kCorrupt,
                          route(lane).chunks[chunks - 1].parts[0].stream->index(),
                          static_cast<int>(lane.rank));
    lane.answered = chunks;
    expect_ack(lane);
    return true;
  }

  bool send_part(Lane& lane) {
    const size_t number = lane.parts_sent;
    if (number >= route(lane).chunks.size() || number >= lane.answered + window_) return false;
    const Chunk& chunk = route(lane).chunks[number];
    Pending& transfer = lane.parts_out.transfer(number);
    if (chunk.bucket >= begun_buckets_ || !transfer.done()) return false;
    if (context_.sits_out()) {
      ++lane.parts_sent;
      return true;
    }
    const auto message = lane.parts_out.bytes(number, chunk.size);
    write_contribution(context_, chunk, message);
    transfer.set(context_.group.send(message, static_cast<int>(lane.rank), part_tag_));
    ++lane.parts_sent;
    return true;
  }

  bool reduce() {
    if (summed_chunks_ == own_.chunks.size()) return false;
    const Chunk& chunk = own_.chunks[summed_chunks_];
    if (chunk.bucket >= begun_buckets_) return false;
    bool moved = false;
    for (; next_rank_ < context_.ranks() && arrived(next_rank_); ++next_rank_) {
      add(chunk, next_rank_);
      moved = true;
    }
    if (next_rank_ < context_.ranks() || !mean_slot_is_free(summed_chunks_)) return moved;
    if (vector_rule_ != nullptr)
      sum_of(summed_chunks_).add_statistics(statistics_);
    else
      give_result(summed_chunks_);
    if (acks_only()) send_ack(summed_chunks_ + 1);
    ++summed_chunks_;
    next_rank_ = 0;
    return true;
  }

  // For a VectorRule, once its weights are known.
  bool hand_out() {
    if (!chosen_ || given_chunks_ == own_.chunks.size() || !mean_slot_is_free(given_chunks_))
      return false;
    give_result(given_chunks_);
    return true;
  }

  bool arrived(size_t rank) {
    return rank == context_.rank() ||
           lanes_[lane_index(rank)].parts_in.transfer(summed_chunks_).done();
  }

  void add(const Chunk& chunk, size_t rank) {
    OwnerSum& sum = sum_of(summed_chunks_);
    if (rank == 0) sum.begin(chunk);
    if (!context_.takes_part(rank)) return;
    if (rank == context_.rank()) return sum.add_own();
    Lane& lane = lanes_[lane_index(rank)];
    sum.add(rank, lane.parts_in.bytes(summed_chunks_, chunk.size));
    expect_part(lane, summed_chunks_ + window_);
  }

  bool mean_slot_is_free(size_t number) {
    return std::all_of(lanes_.begin(), lanes_.end(),
                       [&](Lane& lane) { return lane.means_out.transfer(number).done(); });
  }

  // In the slot of the last of these chunks.
  void send_ack(size_t chunks) {
    if (!needs_ack(own_, chunks)) return;
    const auto message = means_out_.bytes(chunks - 1, sizeof(SealedWord));
    const SealedWord word = ack_of(context_.rank(), chunks);
    std::memcpy(message.data(), &word, sizeof word);
    send_to_all(message, chunks - 1);
  }

  void send_to_all(std::span<const std::byte> message, size_t number) {
    for (Lane& lane : lanes_)
      lane.means_out.transfer(number).set(
          context_.group.send(message, static_cast<int>(lane.rank), mean_tag_));
  }

  // What the rule makes of a chunk goes to all, or stays here where results are shards.
  void give_result(size_t number) {
    ++given_chunks_;
    OwnerSum& sum = sum_of(number);
    if (shards_only_) return sum.keep_result(row_weights_);
    const auto message = means_out_.bytes(number, own_.chunks[number].size);
    sum.write_result(message, row_weights_);
    send_to_all(message, number);
    sum.take_own_result(message);
  }

  // A mean that is there before this rank has sent its part is not the mean of this step.
  bool take_mean(Lane& lane) {
    const size_t number = lane.answered;
    if (number >= lane.parts_sent || !lane.means_in.transfer(number).done()) return false;
    const Chunk& chunk = route(lane).chunks[number];
    take_result(context_, chunk, lane.means_in.bytes(number, chunk.size), lane.rank);
    expect_mean(lane, number + window_);
    ++lane.answered;
    return true;
  }

  // All that this rank gets of a bucket is there; after the last one, all that it gave has left.
  bool finished(size_t bucket) {
    if (vector_rule_ != nullptr && !chosen_) return false;
    if (given_chunks_ < own_.ends[bucket]) return false;
    for (const Lane& lane : lanes_)
      if ((shards_only_ ? lane.parts_sent : lane.answered) < route(lane).ends[bucket]) return false;
    if (bucket + 1 < members_.size()) return true;
    return std::all_of(lanes_.begin(), lanes_.end(), [](Lane& lane) {
      return lane.parts_out.all_done() && lane.means_out.all_done() && lane.means_in.all_done();
    });
  }

  StepContext& context_;
  const ChunkPlan plan_;
  const Route& own_;
  const size_t window_;
  const bool shards_only_;
  const VectorRule* const vector_rule_;              // null: the rule is none
  std::vector<std::vector<ActiveStream*>> members_;  // of each bucket
  std::vector<Lane> lanes_;                          // to rank + 1, rank + 2, ...
  Ring means_out_;                      // their memory; whether they have left is in the lanes
  std::vector<OwnerMemory*> memories_;  // by stream; null where nothing is remembered
  std::vector<OwnerSum> sums_;          // of the chunk under way, or of all own chunks
  std::vector<double> statistics_;      // of own chunks, for a VectorRule
  std::span<const float> row_weights_;  // from it; empty for other rules
  bool chosen_ = false;                 // these are known
  const int part_tag_;
  const int mean_tag_;
  size_t begun_buckets_ = 0;     // buckets begun in this step
  size_t finished_buckets_ = 0;  // buckets done
  size_t summed_chunks_ = 0;     // own chunks to which all contributions have been added
  size_t given_chunks_ = 0;      // of these, chunks whose result was given
  size_t next_rank_ = 0;         // to be added next
};

// Whether parts of a stream can be encoded on their own, by encoders that serve any of them.
bool is_block_local(const Codec& codec) {
  const CodecInfo& info = codec.info();
  if (info.block == 0 || !info.fixed_size || info.agreed != Agreed::kNothing) return false;
  const StreamSpec block = single_tensor({.name = "block", .shape = {info.block}});
  return codec.make_encoder(block)->save().empty();
}

}  // namespace

// Preferred to dense, as encoding, travel and sum of its chunks overlap.
extern const MethodEntry kScatterReduce{
    .name = "scatter-reduce",
    .preference = 2,
    .carries = is_block_local,
    .refusal = "cannot cut into blocks the payloads of",
    .combines = true,
    .in_place = true,
    .leaves_shards = true,
    .owners_remember = owners_remember,
    .make = [](const MethodParts& parts) -> std::unique_ptr<Method> {
      return std::make_unique<ScatterReduce>(parts);
    }};

}  // namespace thinwire
