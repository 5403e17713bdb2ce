// dense: shards go to their owners; owners add in rank order and hand out the mean.
//
// The bucket's values, one piece after another, are cut into n equal ranges, the shards. A rank
// sends shard j to rank j; rank j adds what it got,
//
//   sum = x_0 + x_1 + ... + x_(n-1)  in fp32,   mean = sum x (1/n),
//
// encodes the mean and sends it to all. Every rank, the owner too, uses what that decodes to. A
// rank sends 2 (n-1)/n of a payload, plus frames: one per piece and shard that it touches. All
// sizes are known beforehand, which takes a codec of fixed size; the sum takes a linear one.
//
// Sums start from -0.0, the one value that adds to any other without changing a bit of it: one rank
// with codec fp32 gets back exactly what it gave.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "exchange/layout/shard.h"
#include "exchange/methods/bucket_method.h"
#include "kernel/axpy.h"

namespace thinwire {
namespace {

class Dense final : public Collective {
 public:
  Dense(StepContext& context, const Streams& streams, const Bucket& bucket, int tag)
      : context_(context),
        tag_(tag),
        shards_(make_shards(streams, bucket, context.ranks())),
        spoilt_(own().slices.size()),
        peers_(context.ranks()) {
    for (const Piece& piece : bucket) streams_.push_back(streams[piece.stream].get());
  }

  void begin() override {
    encode();
    for_others([&](int rank, Peer& peer) {
      peer.decoded = false;
      if (context_.takes_part(static_cast<size_t>(rank))) {
        peer.part_in = context_.buffers.take(own().size);
        receive(peer.receives_part, peer.part_in, rank, tag_);
      }
      peer.mean_in = context_.buffers.take(shards_[static_cast<size_t>(rank)].size);
      receive(peer.receives_mean, peer.mean_in, rank, tag_ + 1);
      send(peer.sends_part, peer.part_out, rank, tag_);
    });
    next_ = 0;
    decoded_ = 0;
    sent_ = false;
    std::fill(spoilt_.begin(), spoilt_.end(), false);
  }

  bool advance() override {
    bool moved = false;
    for (; next_ < peers_.size() && part_arrived(next_); moved = true) {
      if (next_ == 0) begin_sum();
      if (context_.takes_part(next_)) next_ == context_.rank() ? add_own_part() : add_part(next_);
      if (++next_ == peers_.size()) share();
    }
    for_others([&](int rank, Peer& peer) {
      if (peer.decoded || !peer.receives_mean.done()) return;
      take_mean(static_cast<size_t>(rank));
      context_.buffers.give(peer.mean_in);
      moved = true;
    });
    if (!sent_ && all_sent() && decoded_ == peers_.size()) {
      context_.buffers.give(self().mean_in);
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

 private:
  struct Peer {
    Buffer part_out;  // this rank's part of the peer's shard
    Buffer part_in;   // the peer's part of this rank's shard
    Buffer mean_in;   // of the peer's shard; on this rank itself, of its own
    Pending sends_part, receives_part, sends_mean, receives_mean;
    bool decoded = false;
  };

  Shard& own() noexcept { return shards_[context_.rank()]; }
  Peer& self() noexcept { return peers_[context_.rank()]; }

  template <typename Body>
  void for_others(const Body& body) {
    for (size_t step = 1; step < peers_.size(); ++step) {  // each rank starts with another peer
      const size_t rank = (context_.rank() + step) % peers_.size();
      body(static_cast<int>(rank), peers_[rank]);
    }
  }

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
    for_others([&](int /*rank*/, Peer& peer) {
      if (peer.sends_part.done()) context_.buffers.give(peer.part_out);
      all &= peer.sends_part.done() && peer.sends_mean.done();
    });
    return all;
  }

  // What stays here gets no header: nobody checks it.
  void encode() {
    const Stopwatch watch(context_.compress_seconds);
    for (ActiveStream* stream : streams_) stream->prepare(context_);
    if (context_.sits_out()) return;
    for (size_t rank = 0; rank < shards_.size(); ++rank) {
      peers_[rank].part_out = context_.buffers.take(shards_[rank].size);
      for (Slice& slice : shards_[rank].slices) {
        const auto frame = peers_[rank].part_out.bytes().subspan(slice.offset, slice.room);
        ActiveStream& stream = *slice.stream;
        if (rank == context_.rank() && stream.finite())
          stream.write_payload(context_, *slice.encoder, slice.begin, slice.count, frame);
        else
          pad_frame(stream.codec(), frame,
                    stream.write_frame(context_, *slice.encoder, slice.begin, slice.count, frame));
      }
    }
  }

  bool part_arrived(size_t rank) {
    return rank == context_.rank() || peers_[rank].receives_part.done();
  }

  FrameHeader expected(const Slice& slice, size_t sender) const noexcept {
    return context_.header(slice.stream->codec().info().id, slice.stream->index(), slice.begin,
                           slice.count, sender);
  }
  FrameHeader expected_mean(const Slice& slice, size_t owner) const noexcept {
    FrameHeader header = expected(slice, owner);
    header.flags = kFrameResult;
    return header;
  }

  std::span<float> sum() noexcept {
    return {reinterpret_cast<float*>(sum_.bytes().data()), own().count};
  }

  void begin_sum() {
    sum_ = context_.buffers.take(own().count * sizeof(float));
    kernel::fill(sum(), -0.0f);
  }

  void add_part(size_t rank) {
    const Stopwatch watch(context_.decompress_seconds);
    const std::span<const std::byte> bytes = peers_[rank].part_in.bytes();
    std::span<float> rest = sum();
    for (size_t i = 0; i < own().slices.size(); ++i) {
      const Slice& slice = own().slices[i];
      const auto kind =
          add_frame(context_, expected(slice, rank), *slice.decoder,
                    bytes.subspan(slice.offset, slice.room), 1.0f, rest.first(slice.count))
              .kind;
      rest = rest.subspan(slice.count);
      if (kind == FrameOutcome::kFlagged)
        context_.faults.add(ErrorCode::kNonFinite, slice.stream->index(), static_cast<int>(rank));
      if (kind != FrameOutcome::kAdded) spoilt_[i] = true;
    }
    context_.buffers.give(peers_[rank].part_in);
  }

  // What this rank wrote itself, without its header.
  void add_own_part() {
    const Stopwatch watch(context_.decompress_seconds);
    const std::span<const std::byte> bytes = self().part_out.bytes();
    std::span<float> rest = sum();
    for (size_t i = 0; i < own().slices.size(); ++i) {
      const Slice& slice = own().slices[i];
      spoilt_[i] = spoilt_[i] || !slice.stream->finite();  // noted when it was found
      if (slice.stream->finite())
        slice.decoder
            ->decode_add(bytes.subspan(slice.offset, slice.room).subspan(kFrameHeaderSize), 1.0f,
                         rest.first(slice.count))
            .or_throw();
      rest = rest.subspan(slice.count);
    }
    context_.buffers.give(self().part_out);
  }

  // Makes the mean of this rank's shard and sends it to all. A flag stands for a mean that cannot
  // be given; this rank has noted why.
  void share() {
    {
      const Stopwatch watch(context_.compress_seconds);
      self().mean_in = context_.buffers.take(own().size);
      kernel::scale(sum(), mean_weight(peers_.size()));
      std::span<const float> mean = sum();
      for (size_t i = 0; i < own().slices.size(); ++i) {
        write_mean(i, mean.first(own().slices[i].count));
        mean = mean.subspan(own().slices[i].count);
      }
      context_.buffers.give(sum_);
    }
    for_others(
        [&](int rank, Peer& peer) { send(peer.sends_mean, self().mean_in, rank, tag_ + 1); });
    take_mean(context_.rank());
  }

  void write_mean(size_t index, std::span<const float> mean) {
    Slice& slice = own().slices[index];
    const auto frame = self().mean_in.bytes().subspan(slice.offset, slice.room);
    if (!spoilt_[index] && !measure(mean).finite) {  // each was finite: the sum overflowed
      context_.faults.add(ErrorCode::kNonFinite, slice.stream->index(), -1);
      spoilt_[index] = true;
    }
    FrameHeader header = expected_mean(slice, context_.rank());
    if (spoilt_[index]) {
      header.flags |= kFrameNonFinite;
    } else {
      const Signal signal{.values = mean, .fresh = {}, .moments = {}};
      Call call = context_.call;
      call.salt += context_.ranks();  // another draw than for this rank's own part
      call.offset = slice.begin;
      header.payload_size =
          slice.encoder->encode(signal, call, frame.subspan(kFrameHeaderSize), {}).size;
    }
    const size_t size = kFrameHeaderSize + header.payload_size;
    seal_frame(header, frame.first(size));
    pad_frame(slice.stream->codec(), frame, size);
  }

  void take_mean(size_t owner) {
    const Stopwatch watch(context_.decompress_seconds);
    const std::span<const std::byte> bytes = peers_[owner].mean_in.bytes();
    for (size_t i = 0; i < shards_[owner].slices.size(); ++i) {
      const Slice& slice = shards_[owner].slices[i];
      const auto result = slice.stream->result().subspan(slice.begin, slice.count);
      const auto frame = bytes.subspan(slice.offset, slice.room);
      kernel::fill(result, -0.0f);
      if (owner != context_.rank())
        add_frame(context_, expected_mean(slice, owner), *slice.decoder, frame, 1.0f, result);
      else if (!spoilt_[i])
        slice.decoder->decode_add(frame.subspan(kFrameHeaderSize), 1.0f, result).or_throw();
    }
    peers_[owner].decoded = true;
    ++decoded_;
  }

  StepContext& context_;
  const int tag_;
  std::vector<ActiveStream*> streams_;
  std::vector<Shard> shards_;  // by owner
  Buffer sum_;                 // of this rank's shard, fp32
  std::vector<bool> spoilt_;   // slices of this rank's shard without a sum
  std::vector<Peer> peers_;    // by rank, this one included
  size_t next_ = 0;            // rank to be added next
  size_t decoded_ = 0;         // shards whose mean is in place
  bool sent_ = false;
};

}  // namespace

extern const MethodEntry kDense{
    .name = "dense",
    .preference = 3,
    .carries = [](const Codec& codec) { return codec.info().linear && codec.info().fixed_size; },
    .refusal = "cannot add payloads of",
    .cuts_anywhere = true,
    .owners_remember = no_owner_remembers,
    .make =
        [](const MethodParts& parts) {
          return for_each_bucket(parts, [&](const Bucket& bucket, int tag) {
            return std::make_unique<Dense>(parts.context, parts.streams, bucket, tag);
          });
        }};

}  // namespace thinwire
