// The frame of a leader: written by one, read by all, itself included.
// SPDX-License-Identifier: Apache-2.0
#include "sync/weight_broadcast.h"

#include <algorithm>

#include "core/check.h"
#include "core/checksum.h"
#include "kernel/axpy.h"
#include "kernel/memory_passes.h"
#include "stream/frame_check.h"
#include "stream/memory_slot.h"

namespace thinwire {

// r, which is the same on all ranks and so its own mean at another number of them.
class WeightBroadcast::Reference final : public Stateful {
 public:
  explicit Reference(std::span<const float> start) : values(start.begin(), start.end()) {}

  StateArrays save() const override {
    return {make_state("values", std::span<const float>(values), OnResize::kOwedToMean)};
  }
  Status load(const StateArrays& arrays) override {
    return copy_state(arrays, "values", std::span<float>(values));
  }

  AlignedVector<float> values;
};

WeightBroadcast::WeightBroadcast(Store& store, const std::string& name, size_t stream,
                                 const std::vector<TensorSpec>& tensors,
                                 std::span<const float> start, const SynchroniserOptions& options)
    : spec_{.name = name, .tensors = tensors},
      stream_(stream),
      seed_(options.seed),
      generation_(options.generation),
      next_(start.size()) {
  NamedCodec named = std::move(make_codec(options.codec).value());
  codec_ = std::move(named.codec);
  decoder_ = codec_->make_decoder(spec_);
  encoder_ = &open_memory<Encoder>(store, "sync/" + name + "/encoder", named.canonical,
                                   [&] { return codec_->make_encoder(spec_); });
  frame_.resize(kFrameHeaderSize + codec_->max_encoded_size(spec_));
  if (codec_->info().lossless) return;
  reference_ = &store.open<Reference>("sync/" + name + "/reference",
                                      [&] { return std::make_unique<Reference>(start); });
  difference_.resize(start.size());
}

void WeightBroadcast::send(uint64_t round, int owner, std::span<const float> mine,
                           std::span<const Hop> route, FaultLog& faults) {
  const FrameHeader header{.codec = codec_->info().id,
                           .flags = 0,
                           .sender = static_cast<uint16_t>(owner),
                           .generation = generation_,
                           .stream = static_cast<uint32_t>(stream_),
                           .step = round,
                           .count = next_.size(),
                           .payload_size = 0};
  uint64_t size = frame_.size();
  if (!mine.empty()) size = write(header, mine);
  for (const Hop& hop : route) {
    if (!codec_->info().fixed_size) {
      hop.group->broadcast(std::as_writable_bytes(std::span(&size, 1)), hop.root);
      if (size > frame_.size())
        throw Error(ErrorCode::kCorrupt, "synchroniser: rank " + std::to_string(owner) +
                                             " announces " + std::to_string(size) +
                                             " bytes where at most " +
                                             std::to_string(frame_.size()) + " are possible");
    }
    hop.group->broadcast(std::span(frame_).first(size), hop.root);
  }
  read(header, size, faults);
}

// Returns the frame's size. One that is flagged fills the room of one that is not, where receivers
// count on it.
size_t WeightBroadcast::write(const FrameHeader& expected, std::span<const float> mine) {
  Signal signal{.values = mine, .fresh = {}, .moments = {}};
  if (reference_ != nullptr) {
    signal.moments =
        kernel::weighted_sum_with_moments(1, mine, -1, reference_->values, difference_);
    signal.values = difference_;
  } else {
    signal.moments = measure(mine);
  }
  FrameHeader header = expected;
  const Call call{
      .seed = seed_, .step = header.step, .salt = header.sender, .offset = 0, .ranks = 1};
  const auto payload = std::span(frame_).subspan(kFrameHeaderSize);
  const bool finite = signal.moments->finite;
  if (finite)
    header.payload_size = encoder_->encode(signal, call, payload, {}).size;
  else
    header.flags = kFrameNonFinite;
  const size_t size = kFrameHeaderSize + header.payload_size;
  seal_frame(header, std::span(frame_).first(size));
  if (!codec_->info().fixed_size) return size;
  if (!finite) std::fill(payload.begin(), payload.end(), std::byte{0});
  return frame_.size();
}

void WeightBroadcast::read(const FrameHeader& expected, size_t size, FaultLog& faults) {
  const auto fault = [&](ErrorCode code) { faults.add(code, stream_, expected.sender); };
  Result<Frame> read = read_frame(std::span(frame_).first(size));
  if (!read) return fault(ErrorCode::kCorrupt);
  const Frame& frame = read.value();
  const FrameHeader& header = frame.header;
  payload_bytes_ = frame.payload.size();
  if (frame_difference(header, expected) != nullptr) return fault(ErrorCode::kCorrupt);
  if ((header.flags & kFrameNonFinite) != 0) return fault(ErrorCode::kNonFinite);
  if (reference_ != nullptr)
    std::copy(reference_->values.begin(), reference_->values.end(), next_.begin());
  else
    kernel::fill(next_, -0.0f);  // -0 + x is x, zeros of both signs included
  if (!decoder_->decode_add(frame.payload, 1, next_)) return fault(ErrorCode::kCorrupt);
  if (!measure(next_).finite) fault(ErrorCode::kNonFinite);
}

void WeightBroadcast::commit() {
  encoder_->commit();
  if (reference_ != nullptr) std::swap(next_, reference_->values);
}

std::span<const float> WeightBroadcast::taken() const noexcept {
  return reference_ != nullptr ? reference_->values : next_;
}

void WeightBroadcast::rollback() { encoder_->rollback(); }

uint64_t WeightBroadcast::reference_checksum() const {
  if (reference_ == nullptr) return 0;
  return checksum(std::as_bytes(std::span(reference_->values)));
}

}  // namespace thinwire
