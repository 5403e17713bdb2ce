// Method library: the group's own all-reduce in fp32, as a baseline. Its bits may differ between
// runs.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "exchange/methods/bucket_method.h"
#include "exchange/rules/sum_to_mean.h"
#include "exchange/step/stopwatch.h"

namespace thinwire {
namespace {

// Blocks: it does its work in begin. No frames, so nothing notices a corrupt byte.
class Library final : public BucketSteps {
 public:
  Library(StepContext& context, const Streams& streams, const Bucket& bucket) : context_(context) {
    size_t total = 0;
    for (const Piece& piece : bucket) {
      streams_.push_back(streams[piece.stream].get());
      total += piece.count;
    }
    values_.resize(total);
  }

  void begin() override {
    {
      const Stopwatch watch(context_.compress_seconds);
      auto to = values_.begin();
      for (ActiveStream* stream : streams_) {
        stream->prepare(context_);
        to = std::copy(stream->signal().begin(), stream->signal().end(), to);
        stream->sent_unframed();  // which clears a signal that lies in the memory
      }
    }
    context_.group.library_all_reduce(values_);
    const Stopwatch watch(context_.decompress_seconds);
    std::span<float> from = values_;
    for (ActiveStream* stream : streams_) {
      const auto mean = from.first(stream->spec().count());
      if (!sum_to_mean(mean, context_.ranks()) &&
          stream->finite())  // another rank's values, or the sum's overflow
        context_.faults.add(ErrorCode::kNonFinite, stream->index(), -1);
      std::copy(mean.begin(), mean.end(), stream->result().begin());
      from = from.subspan(mean.size());
    }
  }

  bool advance() override { return false; }
  bool done() const noexcept override { return true; }
  const Transfer* awaited() const noexcept override { return nullptr; }

 private:
  StepContext& context_;
  std::vector<ActiveStream*> streams_;
  std::vector<float> values_;
};

}  // namespace

extern const MethodEntry kLibrary{
    .name = "library",
    .carries = [](const Codec& codec) { return codec.info().lossless; },
    .refusal = "carries fp32 only, and not",
    .blocks = true,
    .owners_remember = no_owner_remembers,
    .make =
        [](const MethodParts& parts) {
          return for_each_bucket(parts, [&](const Bucket& bucket, int /*tag*/) {
            return std::make_unique<Library>(parts.context, parts.streams, bucket);
          });
        }};

}  // namespace thinwire
