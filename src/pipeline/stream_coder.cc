// One stream's step, and the streams by their number.
// SPDX-License-Identifier: Apache-2.0
#include "pipeline/stream_coder.h"

#include <string>

#include "core/bytes.h"
#include "pipeline/state_levels.h"

namespace thinwire {
namespace {

constexpr std::string_view kMemory = "memory/";
constexpr std::string_view kEncoder = "encoder/";

}  // namespace

StreamCoder::StreamCoder(const Codec& codec, const StreamSpec& stream, const std::string& feedback)
    : feedback_(make_feedback(feedback, stream).value()), encoder_(codec.make_encoder(stream)) {}

std::optional<size_t> StreamCoder::encode(std::span<const float> values, const Call& call,
                                          std::span<std::byte> out) {
  used_ = true;
  const Signal signal = feedback_->prepare(values, call);
  if (!signal.moments->finite) return std::nullopt;
  const size_t size = encoder_->encode(signal, call, out, feedback_->rest()).size;
  feedback_->sent(values, 0, values.size());
  return size;
}

void StreamCoder::commit() {
  if (!used_) return;
  feedback_->commit();
  encoder_->commit();
  used_ = false;
}

void StreamCoder::rollback() {
  if (!used_) return;
  feedback_->rollback();
  encoder_->rollback();
  used_ = false;
}

StateArrays StreamCoder::save() const {
  StateArrays arrays;
  add_level(feedback_->save(), kMemory, arrays);
  add_level(encoder_->save(), kEncoder, arrays);
  return arrays;
}

Status StreamCoder::load(const StateArrays& arrays) {
  if (Status status = feedback_->load(take_level(arrays, kMemory)); !status) return status;
  return encoder_->load(take_level(arrays, kEncoder));
}

StreamCoders::StreamCoders(const BoundaryPlan& plan)
    : plan_(plan), coders_(plan.spec.samples * plan.spec.micro_batches) {}

std::unique_ptr<StreamCoder> StreamCoders::make(size_t index) const {
  const size_t samples = plan_.stream_samples(index % plan_.spec.samples + 1);
  return std::make_unique<StreamCoder>(*plan_.codec, plan_.stream(samples), plan_.feedback);
}

std::optional<size_t> StreamCoders::encode(std::span<const float> values, const Visit& visit,
                                           size_t place, size_t samples, std::span<std::byte> out) {
  const size_t index =
      visit.micro_batch * plan_.spec.samples + (plan_.spec.per_sample ? place : samples - 1);
  if (!coders_[index]) coders_[index] = make(index);
  const Call call{.seed = plan_.spec.seed, .step = visit.step, .salt = index};
  const auto size = coders_[index]->encode(values, call, out.subspan(sizeof(uint32_t)));
  if (!size) return std::nullopt;
  ByteWriter(out).put(static_cast<uint32_t>(*size));
  return sizeof(uint32_t) + *size;
}

void StreamCoders::commit() {
  for (const auto& coder : coders_)
    if (coder) coder->commit();
}

void StreamCoders::rollback() {
  for (const auto& coder : coders_)
    if (coder) coder->rollback();
}

StateArrays StreamCoders::save() const {
  StateArrays arrays;
  for (size_t i = 0; i < coders_.size(); ++i)
    if (coders_[i]) add_level(coders_[i]->save(), std::to_string(i) + "/", arrays);
  return arrays;
}

// Streams without an array were not used yet, or remember nothing.
Status StreamCoders::load(const StateArrays& arrays) {
  Coders loaded(coders_.size());
  size_t found = 0;
  for (size_t i = 0; i < loaded.size(); ++i) {
    const StateArrays own = take_level(arrays, std::to_string(i) + "/");
    found += own.size();
    if (own.empty()) continue;
    loaded[i] = make(i);
    if (Status status = loaded[i]->load(own); !status) return status;
  }
  if (found != arrays.size())
    return Status::fail(ErrorCode::kMismatch,
                        plan_.origin() + "saved streams that this boundary does not have");
  coders_ = std::move(loaded);
  return Status::ok();
}

}  // namespace thinwire
