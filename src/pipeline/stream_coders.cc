// StreamCoders: the coded streams of a sender by number, made at their first use.
// SPDX-License-Identifier: Apache-2.0
#include "pipeline/stream_coders.h"

#include <string>

#include "core/bytes.h"
#include "pipeline/state_levels.h"

namespace thinwire {
namespace {

constexpr std::string_view kMemory = "memory/";
constexpr std::string_view kEncoder = "encoder/";

StateArrays save_stream(CodedStream& stream) {
  StateArrays arrays;
  add_level(stream.memory().save(), kMemory, arrays);
  add_level(stream.encoder().save(), kEncoder, arrays);
  return arrays;
}

Status load_stream(const StateArrays& arrays, CodedStream& stream) {
  if (Status status = stream.memory().load(take_level(arrays, kMemory)); !status) return status;
  return stream.encoder().load(take_level(arrays, kEncoder));
}

}  // namespace

StreamCoders::StreamCoders(const BoundaryPlan& plan)
    : plan_(plan), streams_(plan.spec.samples * plan.spec.micro_batches) {}

StreamSpec StreamCoders::spec_of(size_t index) const {
  return plan_.stream(plan_.stream_samples(index % plan_.spec.samples + 1));
}

std::unique_ptr<CodedStream> StreamCoders::make(size_t index) const {
  return std::make_unique<CodedStream>(spec_of(index), codec(), plan_.feedback);
}

std::optional<size_t> StreamCoders::encode(std::span<const float> values, const Visit& visit,
                                           size_t place, size_t samples, std::span<std::byte> out) {
  const size_t index =
      visit.micro_batch * plan_.spec.samples + (plan_.spec.per_sample ? place : samples - 1);
  if (!streams_[index]) streams_[index] = make(index);
  CodedStream& stream = *streams_[index];
  const Call call{.seed = plan_.spec.seed, .step = visit.step, .salt = index};
  const Signal& signal = stream.form(values, call);
  if (!stream.finite()) return std::nullopt;
  const size_t size =
      stream.encode(stream.encoder(), signal, 0, call, out.subspan(sizeof(uint32_t))).size;
  ByteWriter(out).put(static_cast<uint32_t>(size));
  return sizeof(uint32_t) + size;
}

void StreamCoders::commit() {
  for (const auto& stream : streams_)
    if (stream) stream->commit();
}

void StreamCoders::rollback() {
  for (const auto& stream : streams_)
    if (stream) stream->rollback();
}

void StreamCoders::change_codec() {
  for (const auto& stream : streams_)
    if (stream) stream->change_codec(codec());
}

StateArrays StreamCoders::save() const {
  StateArrays arrays;
  for (size_t i = 0; i < streams_.size(); ++i)
    if (streams_[i]) add_level(save_stream(*streams_[i]), std::to_string(i) + "/", arrays);
  return arrays;
}

// Streams without an array were not used yet, or remember nothing.
Status StreamCoders::load(const StateArrays& arrays) {
  Streams loaded(streams_.size());
  size_t found = 0;
  for (size_t i = 0; i < loaded.size(); ++i) {
    const StateArrays own = take_level(arrays, std::to_string(i) + "/");
    found += own.size();
    if (own.empty()) continue;
    loaded[i] = make(i);
    if (Status status = load_stream(own, *loaded[i]); !status) return status;
  }
  if (found != arrays.size())
    return Status::fail(ErrorCode::kMismatch,
                        plan_.origin() + "saved streams that this boundary does not have");
  streams_ = std::move(loaded);
  return Status::ok();
}

}  // namespace thinwire
