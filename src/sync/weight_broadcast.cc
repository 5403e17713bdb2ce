// WeightBroadcast: writes a leader's frame, and reads it on every worker, the leader included.
// SPDX-License-Identifier: Apache-2.0
#include "sync/weight_broadcast.h"

#include <algorithm>

#include "comm/sealed_words.h"
#include "core/bytes.h"
#include "core/checksum.h"
#include "kernel/axpy.h"
#include "stream/frame_check.h"
#include "stream/memory_slot.h"

namespace thinwire {
namespace {

std::unique_ptr<Feedback> make_none(const StreamSpec& spec) {
  return std::move(make_feedback("none", spec).value());
}

CodedStream open_stream(Store& store, const StreamSpec& spec, std::span<const float> start,
                        const std::string& codec_text) {
  NamedCodec named = std::move(make_codec(codec_text).value());
  const StreamCodec codec{.codec = std::move(named.codec), .text = named.canonical};
  const std::string key = "sync/" + spec.name;
  auto& encoder = open_slot<Encoder>(store, key + "/encoder", codec.text,
                                     [&] { return codec.codec->make_encoder(spec); });
  auto memory =
      codec.codec->info().lossless
          ? std::make_shared<MemorySlot<Feedback>>("none", make_none(spec))
          : CodedStream::in_store(open_slot<Feedback>(store, key + "/reference", "reference", [&] {
              return std::make_unique<Reference>(start);
            }));
  return CodedStream(spec, codec, std::move(memory), CodedStream::in_store(encoder));
}

}  // namespace

WeightBroadcast::WeightBroadcast(Store& store, const std::string& name, size_t stream,
                                 const std::vector<TensorSpec>& tensors,
                                 std::span<const float> start, const SynchroniserOptions& options)
    : number_(stream),
      seed_(options.seed),
      generation_(options.generation),
      stream_(open_stream(store, {.name = name, .tensors = tensors}, start, options.codec)),
      taken_(start.size()),
      frame_(kFrameHeaderSize + stream_.codec().max_encoded_size(stream_.spec())) {
  if (stream_.codec().info().lossless) return;
  reference_ = &static_cast<const Reference&>(stream_.memory());
  if (reference_->values().size() != start.size())
    throw Error(ErrorCode::kMismatch,
                "synchroniser '" + name + "': the store has a reference of " +
                    std::to_string(reference_->values().size()) + " values, the tensors have " +
                    std::to_string(start.size()) + "; give this one a store of its own");
}

void WeightBroadcast::send(uint64_t round, int owner, std::span<const float> mine,
                           std::span<const Hop> route, FaultLog& faults) {
  const FrameHeader header{.codec = stream_.codec().info().id,
                           .flags = 0,
                           .sender = static_cast<uint16_t>(owner),
                           .generation = generation_,
                           .stream = static_cast<uint32_t>(number_),
                           .step = round,
                           .count = taken_.size(),
                           .payload_size = 0};
  uint64_t size = frame_.size();
  if (!mine.empty()) size = write(header, mine);
  for (const Hop& hop : route) {
    if (!stream_.codec().info().fixed_size) {
      hop.group->broadcast(writable_byte_view(size), hop.root);
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
  FrameHeader header = expected;
  const Call call{
      .seed = seed_, .step = header.step, .salt = header.sender, .offset = 0, .ranks = 1};
  const auto payload = std::span(frame_).subspan(kFrameHeaderSize);
  const Signal& signal = stream_.form(mine, call);
  if (stream_.finite())
    header.payload_size = stream_.encode(stream_.encoder(), signal, 0, call, payload).size;
  else
    header.flags = kFrameNonFinite;
  const size_t size = kFrameHeaderSize + header.payload_size;
  seal_frame(header, std::span(frame_).first(size));
  if (!stream_.codec().info().fixed_size) return size;
  if (!stream_.finite()) std::fill(payload.begin(), payload.end(), std::byte{0});
  return frame_.size();
}

void WeightBroadcast::read(const FrameHeader& expected, size_t size, FaultLog& faults) {
  const auto fault = [&](ErrorCode code) { faults.add(code, number_, expected.sender); };
  Result<Frame> read = read_frame(std::span(frame_).first(size));
  if (!read) return fault(ErrorCode::kCorrupt);
  const Frame& frame = read.value();
  const FrameHeader& header = frame.header;
  payload_bytes_ = frame.payload.size();
  if (frame_difference(header, expected) != nullptr) return fault(ErrorCode::kCorrupt);
  if ((header.flags & kFrameNonFinite) != 0) return fault(ErrorCode::kNonFinite);
  if (reference_ != nullptr)
    std::copy(reference_->values().begin(), reference_->values().end(), taken_.begin());
  else
    kernel::fill(taken_, -0.0f);  // -0 + x is x, zeros of both signs included
  if (!stream_.decoder().decode_add(frame.payload, 1, taken_)) return fault(ErrorCode::kCorrupt);
  if (!measure(taken_).finite) return fault(ErrorCode::kNonFinite);
  stream_.receive(taken_);
}

uint64_t WeightBroadcast::reference_checksum() const {
  if (reference_ == nullptr) return 0;
  return checksum(std::as_bytes(reference_->values()));
}

bool WeightBroadcast::align(Group& group, uint64_t rounds) {
  if (reference_ == nullptr) return false;
  const std::vector<uint64_t> sums = gather_sealed(group, reference_checksum(), number_);
  if (std::ranges::count(sums, sums[0]) == std::ssize(sums)) return false;
  const std::vector<uint64_t> held = gather_sealed(group, rounds, number_);
  const auto latest = static_cast<size_t>(std::ranges::max_element(held) - held.begin());
  std::ranges::copy(reference_->values(), taken_.begin());
  group.broadcast(std::as_writable_bytes(std::span(taken_)), static_cast<int>(latest));
  if (checksum(std::as_bytes(std::span(taken_))) != sums[latest])
    throw Error(ErrorCode::kCorrupt,
                "synchroniser '" + name() + "': the reference that all go on with arrived corrupt");
  stream_.receive(taken_);
  stream_.commit();
  return true;
}

}  // namespace thinwire
