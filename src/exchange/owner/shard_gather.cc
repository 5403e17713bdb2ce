// ShardGather: encodes the own shard once, sends it to all, and decodes all shards.
// SPDX-License-Identifier: Apache-2.0
#include "thinwire/shard_gather.h"

#include <algorithm>
#include <utility>

#include "core/check.h"
#include "exchange/step/verdict.h"
#include "exchange/wire/frames.h"
#include "kernel/axpy.h"
#include "thinwire/agreement.h"

namespace thinwire {
namespace {

class GatheredShards final : public ShardGather {
 public:
  GatheredShards(std::unique_ptr<Group> channel, const std::vector<std::vector<TensorSpec>>& shards,
                 std::unique_ptr<const Codec> codec, const ShardGatherOptions& options)
      : codec_(std::move(codec)),
        channel_(std::move(channel)),
        none_({}),
        context_{.group = *channel_,
                 .tensors = none_,
                 .generation = options.generation,
                 .call = {.seed = options.seed,
                          .salt = static_cast<uint64_t>(channel_->rank()),
                          .ranks = static_cast<uint64_t>(channel_->size())}} {
    size_t begin = 0;
    for (const auto& shard : shards) {
      begins_.push_back(begin);
      firsts_.push_back(parts_.size());
      size_t size = 0;
      for (const TensorSpec& tensor : shard) {
        const StreamSpec spec = single_tensor(tensor);
        parts_.push_back({.spec = spec,
                          .begin = begin,
                          .room = kFrameHeaderSize + codec_->max_encoded_size(spec),
                          .encoder = codec_->make_encoder(spec),
                          .decoder = codec_->make_decoder(spec)});
        size += parts_.back().room;
        begin += spec.count();
      }
      limit_ = std::max(limit_, size);
    }
    begins_.push_back(begin);
    firsts_.push_back(parts_.size());
  }

  ShardGatherReport gather(uint64_t step, std::span<const float> mine,
                           std::span<float> all) override {
    const size_t own = context_.rank();
    THINWIRE_CHECK(mine.size() == begins_[own + 1] - begins_[own] && all.size() == begins_.back(),
                   "shard gather: a shard of " + std::to_string(mine.size()) +
                       " values and all of " + std::to_string(all.size()) + "; they have " +
                       std::to_string(begins_[own + 1] - begins_[own]) + " and " +
                       std::to_string(begins_.back()));
    context_.call.step = step;
    context_.faults.clear();
    const uint64_t sent = channel_->bytes_sent(), received = channel_->bytes_received();
    ShardGatherReport report;
    report.payload_bytes = encode(mine);
    const auto messages = channel_->all_gather_v(message_, limit_);
    for (size_t rank = 0; rank < messages.size(); ++rank) decode(rank, messages[rank], all);
    end(report);
    report.sent_bytes = channel_->bytes_sent() - sent;
    report.received_bytes = channel_->bytes_received() - received;
    return report;
  }

  size_t begin_of(int rank) const override {
    THINWIRE_CHECK(rank >= 0 && static_cast<size_t>(rank) < begins_.size(),
                   "shard gather: there is no rank " + std::to_string(rank));
    return begins_[static_cast<size_t>(rank)];
  }

 private:
  struct Part {
    StreamSpec spec;
    size_t begin = 0;  // in all
    size_t room = 0;   // of its frame
    std::unique_ptr<Encoder> encoder;
    std::unique_ptr<const Decoder> decoder;
  };

  FrameHeader header(size_t part, size_t owner) const {
    return as_result(context_.header(codec_->info().id, part, parts_[part].begin,
                                     parts_[part].spec.count(), owner));
  }

  // Returns the bytes of all payloads. A part that is not finite is a flagged header.
  size_t encode(std::span<const float> mine) {
    const size_t own = context_.rank();
    message_.resize(limit_);
    size_t used = 0, payloads = 0;
    for (size_t i = firsts_[own]; i < firsts_[own + 1]; ++i) {
      const auto values = mine.subspan(parts_[i].begin - begins_[own], parts_[i].spec.count());
      const auto frame = std::span(message_).subspan(used, parts_[i].room);
      FrameHeader header = this->header(i, own);
      const Moments moments = measure(values);
      if (moments.finite) {
        const Signal signal{.values = values, .fresh = {}, .moments = moments};
        header.payload_size =
            parts_[i]
                .encoder->encode(signal, context_.call, frame.subspan(kFrameHeaderSize), {})
                .size;
        payloads += header.payload_size;
      } else {
        header.flags |= kFrameNonFinite;
        context_.faults.add(ErrorCode::kNonFinite, i, static_cast<int>(own));
      }
      seal_frame(header, frame.first(kFrameHeaderSize + header.payload_size));
      used += kFrameHeaderSize + header.payload_size;
    }
    message_.resize(used);
    return payloads;
  }

  void decode(size_t owner, std::span<const std::byte> message, std::span<float> all) {
    for (size_t i = firsts_[owner]; i < firsts_[owner + 1]; ++i) {
      const auto values = all.subspan(parts_[i].begin, parts_[i].spec.count());
      const FrameHeader expected = header(i, owner);
      kernel::fill(values, -0.0f);  // adds to any value without changing a bit of it
      const FrameOutcome outcome =
          add_frame(context_, expected, *parts_[i].decoder, message, 1.0f, values);
      (void)was_added(context_, expected, outcome);
      if (outcome.size == 0) return;  // where the next frame begins is unknown
      message = message.subspan(outcome.size);
    }
    if (!message.empty())
      context_.faults.add(ErrorCode::kCorrupt, stream_at_fault(owner), static_cast<int>(owner));
  }

  // A part of the owner's, or, of one without parts, the nearest before; 0 if no shard has any.
  size_t stream_at_fault(size_t owner) const {
    return parts_.empty() ? 0 : std::min(firsts_[owner], parts_.size() - 1);
  }

  // The rank that receives a damaged word is the only one that knows of it, so it tells the others.
  Verdict agreed_verdict() {
    try {
      return read_verdict(worst_of_all(*channel_, context_.faults.word()), channel_->size(),
                          parts_.size(), "shard gather");
    } catch (const Error& error) {
      for (size_t i = firsts_[context_.rank()]; i < firsts_[context_.rank() + 1]; ++i)
        parts_[i].encoder->rollback();
      channel_->abort(error.what());
      throw;
    }
  }

  void end(ShardGatherReport& report) {
    const Verdict verdict = agreed_verdict();
    report.skipped = verdict.code != ErrorCode::kOk;
    if (report.skipped)
      report.fault = {
          .code = verdict.code, .rank = verdict.rank, .stream = parts_[verdict.stream].spec.name};
    for (size_t i = firsts_[context_.rank()]; i < firsts_[context_.rank() + 1]; ++i)
      report.skipped ? parts_[i].encoder->rollback() : parts_[i].encoder->commit();
  }

  const std::unique_ptr<const Codec> codec_;
  const std::unique_ptr<Group> channel_;
  TensorTable none_;
  StepContext context_;
  std::vector<Part> parts_;     // of all shards
  std::vector<size_t> begins_;  // by rank, in all; then the end
  std::vector<size_t> firsts_;  // by rank, its first part; then the number of parts
  size_t limit_ = 0;            // bytes of the longest message
  std::vector<std::byte> message_;
};

Result<std::unique_ptr<const Codec>> codec_for(const std::string& text) {
  Result<NamedCodec> named = make_codec(text);
  if (!named) return named.status();
  const CodecInfo& info = named.value().codec->info();
  if (info.sparse || info.selective || info.agreed != Agreed::kNothing || info.vote)
    return Status::fail(
        ErrorCode::kUnsupported,
        "shard gather: codec '" + std::string(info.name) +
            "' does not send every value by itself; use fp32, fp16, bf16 or a quantiser");
  return std::move(named.value().codec);
}

}  // namespace

std::unique_ptr<ShardGather> make_shard_gather(Group& group,
                                               const std::vector<std::vector<TensorSpec>>& shards,
                                               const ShardGatherOptions& options) {
  check_rank_count(group, "shard gather");
  std::string text = "codec " + options.codec + "\nseed " + std::to_string(options.seed) +
                     "\ngeneration " + std::to_string(options.generation) + "\n";
  for (size_t rank = 0; rank < shards.size(); ++rank)
    for (const TensorSpec& part : shards[rank])
      text += "part of rank " + std::to_string(rank) + " " + part.name + " " +
              std::to_string(part.count()) + "\n";
  require_agreement(group, "shard gather", text);
  THINWIRE_CHECK(shards.size() == static_cast<size_t>(group.size()),
                 "shard gather: " + std::to_string(shards.size()) + " shards for " +
                     std::to_string(group.size()) + " ranks");
  auto codec = std::move(codec_for(options.codec).value());
  return std::make_unique<GatheredShards>(group.split(0), shards, std::move(codec), options);
}

}  // namespace thinwire
