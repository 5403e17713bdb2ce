// low-rank, shared-index: ranks agree on what they encode, then all encode the same mean.
//
// Methods low-rank and shared-index: the rounds of the codec (rounds.h) bring every rank the means
// of factors, or one rank's positions and the mean of the values there. Then each encodes, finds
// the same payload as all others, and decodes its own. Plain streams give their values to the first
// round of means. Rounds of many buckets are fused until they fill one message of bucket_bytes,
// since what they offer is small: one message for each round and rank, where the model's offers
// fit. A bucket's offers are still made as soon as its gradients are there.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "exchange/methods/bucket_method.h"
#include "exchange/step/message_tags.h"
#include "exchange/step/stopwatch.h"
#include "exchange/wire/round_plan.h"
#include "exchange/wire/rounds.h"

namespace thinwire {
namespace {

// Buckets whose rounds travel together.
class Cargo {
 public:
  Cargo(StepContext& context, std::vector<ActiveStream*> streams, int tag)
      : context_(context), streams_(streams), rounds_(context, std::move(streams), true, tag) {
    for (const ActiveStream* stream : streams_) {
      if (!stream->is_plain())
        scratch_size_ = std::max(scratch_size_, stream->codec().max_encoded_size(stream->spec()));
    }
  }

  // Streams [first, first + count) are open.
  void begin(size_t first, size_t count) {
    if (first == 0) {
      agreed_ = false;
      rounds_.begin();
    }
    const Stopwatch watch(context_.compress_seconds);
    for (size_t member = first; member < first + count; ++member) {
      streams_[member]->prepare(context_);
      rounds_.join(member);
    }
  }

  bool advance() {
    const bool moved = rounds_.advance();
    if (agreed_ || !rounds_.done()) return moved;
    if (!rounds_.spoilt()) encode_agreed();
    return agreed_ = true;
  }

  bool done() const noexcept { return agreed_; }
  const Transfer* awaited() const noexcept { return rounds_.awaited(); }

 private:
  void encode_agreed() {
    Buffer scratch = context_.buffers.take(scratch_size_);
    for (ActiveStream* stream : streams_) stream->encode_agreed(context_, scratch.bytes());
    context_.buffers.give(scratch);
  }

  StepContext& context_;
  const std::vector<ActiveStream*> streams_;
  size_t scratch_size_ = 0;  // of the longest payload
  Rounds rounds_;
  bool agreed_ = true;
};

class AgreedBucket final : public BucketSteps {
 public:
  AgreedBucket(std::shared_ptr<Cargo> cargo, size_t first, size_t count)
      : cargo_(std::move(cargo)), first_(first), count_(count) {}

  void begin() override { cargo_->begin(first_, count_); }
  bool advance() override { return cargo_->advance(); }
  bool done() const noexcept override { return cargo_->done(); }
  const Transfer* awaited() const noexcept override { return cargo_->awaited(); }

 private:
  const std::shared_ptr<Cargo> cargo_;
  const size_t first_;  // of its streams in the cargo
  const size_t count_;
};

// Bucket i may use tags first_tag + 2i and the one after it.
std::unique_ptr<Method> make_agreed(const MethodParts& parts) {
  const std::vector<Bucket>& buckets = parts.buckets;
  std::vector<std::unique_ptr<BucketSteps>> steps;
  size_t begin = 0;
  for (const size_t end : cargo_ends(parts.streams, buckets, parts.bucket_bytes)) {
    std::vector<ActiveStream*> members;
    std::vector<size_t> firsts;
    for (size_t bucket = begin; bucket < end; ++bucket) {
      firsts.push_back(members.size());
      for (const Piece& piece : buckets[bucket])
        members.push_back(parts.streams[piece.stream].get());
    }
    firsts.push_back(members.size());
    const auto cargo = std::make_shared<Cargo>(
        parts.context, members, parts.first_tag + kTagsPerBucket * static_cast<int>(begin));
    for (size_t i = 0; i + 1 < firsts.size(); ++i)
      steps.push_back(std::make_unique<AgreedBucket>(cargo, firsts[i], firsts[i + 1] - firsts[i]));
    begin = end;
  }
  return std::make_unique<BucketMethod>(std::move(steps));
}

}  // namespace

extern const MethodEntry kLowRank{
    .name = "low-rank",
    .preference = 1,
    .carries = [](const Codec& codec) { return codec.info().agreed == Agreed::kFactors; },
    .refusal = "finds no factors to agree on in",
    .owners_remember = no_owner_remembers,
    .make = make_agreed};

extern const MethodEntry kSharedIndex{
    .name = "shared-index",
    .preference = 1,
    .carries = [](const Codec& codec) { return codec.info().agreed == Agreed::kPositions; },
    .refusal = "finds no positions to agree on in",
    .owners_remember = no_owner_remembers,
    .make = make_agreed};

}  // namespace thinwire
