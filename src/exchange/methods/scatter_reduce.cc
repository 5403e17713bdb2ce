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
// is at most a window of chunks ahead of the means that it has from an owner: that bounds what is on
// its way, however slow a rank is, and cannot block, since the first chunk that an owner lacks may
// always be sent.
//
// Sums start from -0.0, as in dense.cc.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "exchange/layout/chunk_plan.h"
#include "exchange/methods/method.h"
#include "exchange/owner/owner_memory.h"
#include "exchange/wire/lane.h"
#include "kernel/axpy.h"
#include "stream/memory_slot.h"

namespace thinwire {
namespace {

// Chunks ahead of one owner. 32 of 32 KiB are 8 ms at 1 Gbit/s: more than a time slice of whoever
// shares a core with one of the ranks. Among many ranks each pair has less to carry.
size_t window_of(size_t ranks) {
  constexpr size_t kMost = 32;
  constexpr size_t kLeast = 4;
  return std::max(kLeast, kMost / std::max<size_t>(1, ranks - 1));
}

class ScatterReduce final : public Method {
 public:
  explicit ScatterReduce(const MethodParts& parts)
      : context_(parts.context),
        plan_(parts.streams, parts.buckets, context_.ranks(), parts.chunk_values),
        own_(plan_.route(context_.rank())),
        window_(window_of(context_.ranks())),
        means_out_(window_, plan_.max_size()),
        contributions_(parts.combine, context_.ranks(), plan_.max_count()),
        vote_room_(plan_.max_size()),
        spoilt_(plan_.max_parts()),
        memories_(parts.streams.size()),
        part_tag_(parts.first_tag),
        mean_tag_(parts.first_tag + 1) {
    for (const Bucket& bucket : parts.buckets) {
      members_.emplace_back();
      for (const Piece& piece : bucket) {
        ActiveStream& stream = *parts.streams[piece.stream];
        members_.back().push_back(&stream);
        memories_[piece.stream] = memory_of(stream, parts.store);
      }
    }
    for (size_t step = 1; step < context_.ranks(); ++step)  // each rank starts with another peer
      lanes_.emplace_back((context_.rank() + step) % context_.ranks(), window_, plan_.max_size());
  }

  void begin(size_t bucket) override {
    if (bucket == 0) begin_step();
    const Stopwatch watch(context_.compress_seconds);
    for (ActiveStream* stream : members_[bucket]) stream->prepare_parts(context_);
    released_ = bucket + 1;
  }

  // At most one chunk of each kind for each peer, so that none waits long for the others.
  bool advance() override {
    bool moved = reduce();
    for (Lane& lane : lanes_) moved |= send_part(lane);
    for (Lane& lane : lanes_) moved |= take_mean(lane);
    while (finished_ < released_ && finished(finished_)) {
      ++finished_;
      moved = true;
    }
    return moved;
  }

  bool done() const noexcept override { return finished_ == released_; }

  void end(bool skipped) noexcept override {
    for (OwnerMemory* memory : memories_)
      if (memory != nullptr) skipped ? memory->rollback() : memory->commit();
  }

  // The rank whose part is next in the sum, if one is awaited; then means, then sends.
  const Transfer* awaited() const noexcept override {
    if (reduced_ < own_.chunks.size() && next_rank_ < context_.ranks() &&
        next_rank_ != context_.rank())
      return lanes_[lane_index(next_rank_)].parts_in.busy(reduced_);
    for (const Lane& lane : lanes_)
      for (const Ring* ring : {&lane.means_in, &lane.parts_out, &lane.means_out})
        if (const Transfer* transfer = ring->busy(); transfer != nullptr) return transfer;
    return nullptr;
  }

 private:
  OwnerMemory* memory_of(const ActiveStream& stream, Store& store) const {
    if (!stream.owners_remember()) return nullptr;
    const size_t count = stream.spec().count();
    const Range shard = plan_.shard(stream, context_.rank());
    auto& memory = open_memory<OwnerMemory>(
        store, stream.spec().name + "/owner", "residual of " + std::to_string(count),
        [&] { return std::make_unique<OwnerMemory>(count, shard, context_.ranks()); });
    memory.move_to(shard);
    return &memory;
  }

  void begin_step() {
    released_ = finished_ = reduced_ = next_rank_ = 0;
    for (Lane& lane : lanes_) {
      lane.asked = lane.answered = 0;
      for (size_t number = 0; number < window_; ++number) {
        expect_part(lane, number);
        expect_mean(lane, number);
      }
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

  FrameHeader expected(const ChunkPart& part, size_t sender) const noexcept {
    return context_.header(part.stream->codec().info().id, part.stream->index(), part.range.begin,
                           part.range.count, sender);
  }
  FrameHeader expected_mean(const ChunkPart& part, size_t owner) const noexcept {
    FrameHeader header = expected(part, owner);
    header.flags = kFrameResult;
    return header;
  }

  static std::span<std::byte> frame_of(const ChunkPart& part, std::span<std::byte> message) {
    return message.subspan(part.offset, part.coder->room);
  }

  // Calls body(i, part, its values in `values`) for the parts of a chunk.
  template <typename Body>
  static void for_parts(const Chunk& chunk, std::span<float> values, const Body& body) {
    for (size_t i = 0; i < chunk.parts.size(); ++i) {
      const size_t count = chunk.parts[i].range.count;
      body(i, chunk.parts[i], values.first(count));
      values = values.subspan(count);
    }
  }

  bool send_part(Lane& lane) {
    const size_t number = lane.asked;
    if (number >= route(lane).chunks.size() || number >= lane.answered + window_) return false;
    const Chunk& chunk = route(lane).chunks[number];
    Pending& transfer = lane.parts_out.transfer(number);
    if (chunk.bucket >= released_ || !transfer.done()) return false;
    if (context_.sits_out()) {
      ++lane.asked;
      return true;
    }
    const auto message = lane.parts_out.bytes(number, chunk.size);
    {
      const Stopwatch watch(context_.compress_seconds);
      for (const ChunkPart& part : chunk.parts) {
        const auto frame = frame_of(part, message);
        const auto [begin, count] = part.range;
        pad_frame(part.stream->codec(), frame,
                  part.stream->write_frame(context_, *part.coder->encoder, begin, count, frame));
        part.coder->encoder->rollback();  // it serves other frames too, and remembers none
      }
    }
    transfer.set(context_.group.send(message, static_cast<int>(lane.rank), part_tag_));
    ++lane.asked;
    return true;
  }

  bool reduce() {
    if (reduced_ == own_.chunks.size()) return false;
    const Chunk& chunk = own_.chunks[reduced_];
    if (chunk.bucket >= released_) return false;
    bool moved = false;
    for (; next_rank_ < context_.ranks() && arrived(next_rank_); ++next_rank_) {
      add(chunk, next_rank_);
      moved = true;
    }
    if (next_rank_ < context_.ranks() || !mean_slot_is_free()) return moved;
    share(chunk);
    ++reduced_;
    next_rank_ = 0;
    return true;
  }

  bool arrived(size_t rank) {
    return rank == context_.rank() || lanes_[lane_index(rank)].parts_in.transfer(reduced_).done();
  }

  void add(const Chunk& chunk, size_t rank) {
    const Stopwatch watch(context_.decompress_seconds);
    if (rank == 0) {
      contributions_.begin(chunk.count, context_.attendance.count());
      std::fill(spoilt_.begin(), spoilt_.end(), false);
    }
    if (!context_.takes_part(rank)) return;
    const std::span<float> sum = contributions_.next();
    if (rank == context_.rank()) {
      for_parts(chunk, sum, [&](size_t i, const ChunkPart& part, std::span<float> values) {
        const size_t begin = part.range.begin;
        const bool added =
            part.stream->codec().info().vote
                ? part.stream->add_own_vote(context_, *part.coder, begin, vote_room_, values)
                : part.stream->add_own(context_, begin, values);
        if (!added) spoilt_[i] = true;
      });
      return;
    }
    Lane& lane = lanes_[lane_index(rank)];
    const auto message = lane.parts_in.bytes(reduced_, chunk.size);
    for_parts(chunk, sum, [&](size_t i, const ChunkPart& part, std::span<float> values) {
      const auto kind = add_frame(context_, expected(part, rank), *part.coder->decoder,
                                  frame_of(part, message), 1.0f, values)
                            .kind;
      if (kind == FrameOutcome::kFlagged)
        context_.faults.add(ErrorCode::kNonFinite, part.stream->index(), static_cast<int>(rank));
      if (kind != FrameOutcome::kAdded) spoilt_[i] = true;
    });
    expect_part(lane, reduced_ + window_);
  }

  bool mean_slot_is_free() {
    return std::all_of(lanes_.begin(), lanes_.end(),
                       [&](Lane& lane) { return lane.means_out.transfer(reduced_).done(); });
  }

  // Makes the mean of this rank's chunk and sends it to all. A flag stands for a mean that cannot be
  // given; this rank has noted why.
  void share(const Chunk& chunk) {
    const auto message = means_out_.bytes(reduced_, chunk.size);
    {
      const Stopwatch watch(context_.compress_seconds);
      for_parts(chunk, contributions_.combine(),
                [&](size_t i, const ChunkPart& part, std::span<float> values) {
                  write_mean(i, part, values, frame_of(part, message));
                });
    }
    for (Lane& lane : lanes_)
      lane.means_out.transfer(reduced_).set(
          context_.group.send(message, static_cast<int>(lane.rank), mean_tag_));
    read_mean(chunk, message, context_.rank());
  }

  void write_mean(size_t index, const ChunkPart& part, std::span<float> mean,
                  std::span<std::byte> frame) {
    ActiveStream& stream = *part.stream;
    OwnerMemory* const memory = memories_[stream.index()];
    FrameHeader header = expected_mean(part, context_.rank());
    Signal signal{.values = mean, .fresh = {}, .moments = {}};
    std::span<float> rest;
    if (!spoilt_[index]) {
      if (memory != nullptr) {
        const OwnerMemory::Sum owed = memory->add(part.range.begin, mean);
        signal = {.values = owed.values, .fresh = mean, .moments = owed.moments};
        rest = owed.values;
      } else {
        signal.moments = measure(mean);
      }
      if (!signal.moments->finite) {  // each was finite: the sum overflowed
        context_.faults.add(ErrorCode::kNonFinite, stream.index(), -1);
        spoilt_[index] = true;
      }
    }
    if (spoilt_[index]) {
      header.flags |= kFrameNonFinite;
    } else {
      Call call = context_.call;
      call.salt += context_.ranks();  // another draw than for this rank's own values
      call.offset = part.range.begin;
      const Encoded encoded =
          part.coder->encoder->encode(signal, call, frame.subspan(kFrameHeaderSize), rest);
      part.coder->encoder->rollback();
      stream.count_mean(encoded);
      header.payload_size = encoded.size;
    }
    const size_t size = kFrameHeaderSize + header.payload_size;
    seal_frame(header, frame.first(size));
    pad_frame(stream.codec(), frame, size);
  }

  // A mean that is there before this rank has sent its part is not the mean of this step.
  bool take_mean(Lane& lane) {
    const size_t number = lane.answered;
    if (number >= lane.asked || !lane.means_in.transfer(number).done()) return false;
    const Chunk& chunk = route(lane).chunks[number];
    read_mean(chunk, lane.means_in.bytes(number, chunk.size), lane.rank);
    expect_mean(lane, number + window_);
    ++lane.answered;
    return true;
  }

  void read_mean(const Chunk& chunk, std::span<std::byte> message, size_t owner) {
    const Stopwatch watch(context_.decompress_seconds);
    for (size_t i = 0; i < chunk.parts.size(); ++i) {
      const ChunkPart& part = chunk.parts[i];
      const auto result = part.stream->result().subspan(part.range.begin, part.range.count);
      const auto frame = frame_of(part, message);
      kernel::fill(result, -0.0f);
      if (owner != context_.rank())
        add_frame(context_, expected_mean(part, owner), *part.coder->decoder, frame, 1.0f, result);
      else if (!spoilt_[i])
        part.coder->decoder->decode_add(frame.subspan(kFrameHeaderSize), 1.0f, result).or_throw();
    }
  }

  // All that this rank gets of a bucket is there; after the last one, all that it gave has left.
  bool finished(size_t bucket) {
    if (reduced_ < own_.ends[bucket]) return false;
    for (const Lane& lane : lanes_)
      if (lane.answered < route(lane).ends[bucket]) return false;
    if (bucket + 1 < members_.size()) return true;
    return std::all_of(lanes_.begin(), lanes_.end(), [](Lane& lane) {
      return lane.parts_out.all_done() && lane.means_out.all_done();
    });
  }

  StepContext& context_;
  const ChunkPlan plan_;
  const Route& own_;
  const size_t window_;
  std::vector<std::vector<ActiveStream*>> members_;  // of each bucket
  std::vector<Lane> lanes_;                          // to rank + 1, rank + 2, ...
  Ring means_out_;                      // their memory; whether they have left is in the lanes
  Contributions contributions_;         // to the chunk under way
  std::vector<std::byte> vote_room_;    // for this rank's own vote on it
  std::vector<bool> spoilt_;            // parts of that chunk without a sum
  std::vector<OwnerMemory*> memories_;  // by stream; null where nothing is remembered
  const int part_tag_;
  const int mean_tag_;
  size_t released_ = 0;   // buckets begun in this step
  size_t finished_ = 0;   // buckets done
  size_t reduced_ = 0;    // own chunks handed out
  size_t next_rank_ = 0;  // to be added next
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
    .owners_remember =
        [](const ActiveStream& stream) { return !stream.is_plain() && stream.owners_remember(); },
    .make = [](const MethodParts& parts) -> std::unique_ptr<Method> {
      return std::make_unique<ScatterReduce>(parts);
    }};

}  // namespace thinwire
