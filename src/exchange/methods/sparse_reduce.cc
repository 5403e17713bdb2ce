// sparse-reduce: kept values go to their regions' owners, which hand out the largest sums.
//
// Every stream is dealt out to n regions in stripes (stripes.h), one owner each. A rank encodes its
// whole stream, and sends each owner what it kept of that owner's region. The owner adds in rank
// order in fp32, from zero,
//
//   u = (1/n) x (x_0 + x_1 + ... + x_(n-1)) + what it owes
//
// hands out the largest |u|, as many as a rank sent it on average, and owes the others
// (owner_memory.h). So both ways carry what one rank keeps, about 2 (n-1)/n of a payload, at any
// number of ranks, where gather carries n - 1: positions differ between ranks, and a sum that kept
// all of them would have up to n times as many.
//
// Chosen before recursive doubling with re-selection (gTop-k), which sends log2 n payloads: its
// bytes and its additions grow with n, it selects log2 n times on the way, from sums of some of the
// ranks, and what a rank drops there is neither its own nor the mean's, so that no memory can keep
// it. Here one selection sees the whole sum, and one memory has what it leaves.
//
// Ok-Topk [Li and Hoefler, PPoPP 2022], whose two phases these are, cuts the stream at borders that
// it moves after what was kept, exchanging thresholds and counts. Stripes need no borders: shares
// are even whatever is kept, no rank has to be told, and what owners owe never moves. It hands out
// what passes a global threshold, and ranks keep the rest of what they sent, to send it again; here
// it is on the owner's side already.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "exchange/methods/bucket_method.h"
#include "exchange/owner/reduced_stream.h"
#include "exchange/step/stopwatch.h"
#include "exchange/wire/sized_message.h"

namespace thinwire {
namespace {

class SparseReduce final : public BucketSteps {
 public:
  SparseReduce(StepContext& context, const Streams& streams, const Bucket& bucket, Store& store,
               int tag)
      : context_(context), tag_(tag), peers_(context.ranks()), parts_out_(context.ranks()) {
    for (const Piece& piece : bucket) {
      streams_.push_back(std::make_unique<ReducedStream>(context, *streams[piece.stream], store));
      scratch_size_ = std::max(scratch_size_, streams_.back()->scratch_size());
      sum_count_ += streams_.back()->own_count();
    }
    for (size_t rank = 0; rank < peers_.size(); ++rank)
      for (const auto& stream : streams_)
        if (const auto region = stream->region_of(rank))
          peers_[rank].limit += stream->limit(*region);
  }

  void begin() override {
    next_ = taken_ = 0;
    sent_ = false;
    context_.for_others(peers_, [&](int rank, Peer& peer) {
      if (gives_part(static_cast<size_t>(rank)))
        peer.part_in.expect(context_.group, rank, tag_, own().limit);
      else
        expect_mean(rank, peer);
    });
    encode();
    context_.for_others(peers_, [&](int rank, Peer& peer) {
      if (peer.limit > 0 && !context_.sits_out())
        peer.part_out.start(context_.group, part_for(rank).message(), rank, tag_);
    });
  }

  bool advance() override {
    bool moved = false;
    context_.for_others(peers_, [&](int rank, Peer& peer) {
      if (!peer.part_in.advance(context_)) return;
      moved = true;
      if (peer.part_in.arrived()) expect_mean(rank, peer);  // follows under the same tags
    });
    for (; next_ < peers_.size() && part_arrived(next_); moved = true) {
      if (own().limit > 0 && next_ == 0) begin_sums();
      if (gives_part(next_)) add(next_);
      if (++next_ == peers_.size()) share();
    }
    context_.for_others(peers_, [&](int rank, Peer& peer) {
      moved |= peer.mean_in.advance(context_);
      if (!peer.mean_in.arrived()) return;
      take(peer.mean_in.bytes(), static_cast<size_t>(rank));
      peer.mean_in.release(context_);
      ++taken_;
    });
    if (!sent_ && next_ == peers_.size() && taken_ == peers_.size() && all_sent()) {
      context_.buffers.give(mean_out_.buffer);
      sent_ = moved = true;
    }
    return moved;
  }

  bool done() const noexcept override { return sent_; }

  void end(bool skipped) noexcept override {
    for (const auto& stream : streams_) stream->end(skipped);
  }

  const Transfer* awaited() const noexcept override {
    if (next_ < peers_.size()) return peers_[next_].part_in.transfer();
    for (const Peer& peer : peers_) {
      if (peer.mean_in.transfer() != nullptr) return peer.mean_in.transfer();
      for (const SizedSend* out : {&peer.part_out, &peer.mean_out})
        if (out->transfer() != nullptr) return out->transfer();
    }
    return nullptr;
  }

  bool awaits_owner() const noexcept override { return next_ == peers_.size(); }

 private:
  struct Peer {
    size_t limit = 0;  // bytes of the longest message with the frames of what it owns; 0: nothing
    SizedSend part_out, mean_out;
    SizedReceive part_in, mean_in;
  };

  Peer& own() noexcept { return peers_[context_.rank()]; }
  Outbox& part_for(int rank) noexcept { return parts_out_[static_cast<size_t>(rank)]; }

  void expect_mean(int rank, Peer& peer) {
    if (peer.limit > 0)
      peer.mean_in.expect(context_.group, rank, tag_, peer.limit);
    else
      ++taken_;
  }

  void encode() {
    const Stopwatch watch(context_.compress_seconds);
    context_.for_others(peers_, [&](int rank, Peer& peer) {
      part_for(rank) = {.buffer = context_.buffers.take(peer.limit), .used = 0};
    });
    Buffer scratch = context_.buffers.take(scratch_size_);
    for (const auto& stream : streams_) stream->send(router_, scratch.bytes(), parts_out_);
    context_.buffers.give(scratch);
  }

  // Whether there is something of `rank` in what this rank owns.
  bool gives_part(size_t rank) { return own().limit > 0 && context_.takes_part(rank); }

  bool part_arrived(size_t rank) {
    return rank == context_.rank() || !gives_part(rank) || peers_[rank].part_in.arrived();
  }

  // Calls body(stream) for those of which `rank` has a region.
  template <typename Body>
  void for_owned(size_t rank, const Body& body) {
    for (const auto& stream : streams_)
      if (const auto region = stream->region_of(rank)) body(*stream, *region);
  }

  void begin_sums() {
    sum_ = context_.buffers.take(sum_count_ * sizeof(float));
    std::span<float> rest = sum_.floats(sum_count_);
    for_owned(context_.rank(), [&](ReducedStream& stream, uint32_t /*region*/) {
      stream.begin_sum(rest.first(stream.own_count()));
      rest = rest.subspan(stream.own_count());
    });
  }

  void add(size_t rank) {
    const Stopwatch watch(context_.decompress_seconds);
    if (rank == context_.rank()) {
      for_owned(rank, [](ReducedStream& stream, uint32_t /*region*/) { stream.add_own(); });
      return;
    }
    SizedReceive& part = peers_[rank].part_in;
    read(part.bytes(), rank, context_.rank(),
         [&](ReducedStream& stream, std::span<const std::byte> bytes, uint32_t /*region*/) {
           const size_t size = bytes.empty() ? 0 : stream.add(bytes, rank);
           if (size == 0) stream.spoil();
           return size;
         });
    part.release(context_);
  }

  // Frames of a message, one for each stream that `owner` has a region of. Once there is no telling
  // where one ends, `body` is given no bytes for those that follow.
  template <typename Body>
  void read(std::span<const std::byte> bytes, size_t sender, size_t owner, const Body& body) {
    size_t last = 0;
    bool lost = false;
    for_owned(owner, [&](ReducedStream& stream, uint32_t region) {
      last = stream.stream().index();
      const bool missing = !lost && bytes.empty();
      const size_t size = body(stream, bytes, region);
      lost |= size == 0;
      bytes = lost ? std::span<const std::byte>() : bytes.subspan(size);
      if (missing) context_.faults.add(ErrorCode::kCorrupt, last, static_cast<int>(sender));
    });
    if (!bytes.empty()) context_.faults.add(ErrorCode::kCorrupt, last, static_cast<int>(sender));
  }

  void share() {
    if (own().limit == 0) {
      ++taken_;
      return;
    }
    {
      const Stopwatch watch(context_.compress_seconds);
      mean_out_ = {.buffer = context_.buffers.take(own().limit), .used = 0};
      for_owned(context_.rank(), [&](ReducedStream& stream, uint32_t /*region*/) {
        stream.reduce(selector_, mean_out_);
      });
      context_.buffers.give(sum_);
    }
    context_.for_others(peers_, [&](int rank, Peer& peer) {
      peer.mean_out.start(context_.group, mean_out_.message(), rank, tag_);
    });
    take(mean_out_.message(), context_.rank());
    ++taken_;
  }

  void take(std::span<const std::byte> message, size_t owner) {
    const Stopwatch watch(context_.decompress_seconds);
    read(message, owner, owner,
         [&](ReducedStream& stream, std::span<const std::byte> bytes, uint32_t region) {
           return bytes.empty() ? 0 : stream.take(bytes, region, owner);
         });
  }

  bool all_sent() {
    bool all = true;
    context_.for_others(peers_, [&](int rank, Peer& peer) {
      if (peer.part_out.done()) context_.buffers.give(part_for(rank).buffer);
      all &= peer.part_out.done() && peer.mean_out.done();
    });
    return all;
  }

  StepContext& context_;
  const int tag_;
  std::vector<std::unique_ptr<ReducedStream>> streams_;
  std::vector<Peer> peers_;  // by rank, this one included
  std::vector<Outbox> parts_out_;
  Outbox mean_out_;
  Buffer sum_;  // of this rank's regions, fp32
  KeptRouter router_;
  kernel::TopSelector selector_{0, 0};
  size_t scratch_size_ = 0;
  size_t sum_count_ = 0;
  size_t next_ = 0;   // rank to be added next
  size_t taken_ = 0;  // owners whose regions are in place
  bool sent_ = false;
};

}  // namespace

extern const MethodEntry kSparseReduce{
    .name = "sparse-reduce",
    .carries = [](const Codec& codec) { return codec.info().sparse; },
    .refusal = "cannot list what is kept by",
    .owners_remember = [](const Codec& /*codec*/, bool /*keeps_rest*/) { return true; },
    .make =
        [](const MethodParts& parts) {
          return for_each_bucket(parts, [&](const Bucket& bucket, int tag) {
            return std::make_unique<SparseReduce>(parts.context, parts.streams, bucket, parts.store,
                                                  tag);
          });
        }};

}  // namespace thinwire
