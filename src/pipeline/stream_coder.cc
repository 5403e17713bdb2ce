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

StreamCoder::StreamCoder(const BoundaryPlan& plan, const StreamSpec& stream)
    : feedback_(make_feedback(plan.feedback, stream).value()),
      encoder_(plan.codec->make_encoder(stream)),
      codec_(plan.codec->info().name) {}

// A codec with other options takes over the encoder's state as far as it fits; another codec starts
// afresh.
void StreamCoder::change_codec(const BoundaryPlan& plan, const StreamSpec& stream) {
  auto next = plan.codec->make_encoder(stream);
  if (codec_ == plan.codec->info().name)
    (void)next->load(encoder_->save());  // one that does not fit leaves it as it was
  encoder_ = std::move(next);
  codec_ = plan.codec->info().name;
}

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

StreamSpec StreamCoders::stream(size_t index) const {
  return plan_.stream(plan_.stream_samples(index % plan_.spec.samples + 1));
}

std::optional<size_t> StreamCoders::encode(std::span<const float> values, const Visit& visit,
                                           size_t place, size_t samples, std::span<std::byte> out) {
  const size_t index =
      visit.micro_batch * plan_.spec.samples + (plan_.spec.per_sample ? place : samples - 1);
  if (!coders_[index]) coders_[index] = std::make_unique<StreamCoder>(plan_, stream(index));
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

void StreamCoders::change_codec() {
  for (size_t i = 0; i < coders_.size(); ++i)
    if (coders_[i]) coders_[i]->change_codec(plan_, stream(i));
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
    loaded[i] = std::make_unique<StreamCoder>(plan_, stream(i));
    if (Status status = loaded[i]->load(own); !status) return status;
  }
  if (found != arrays.size())
    return Status::fail(ErrorCode::kMismatch,
                        plan_.origin() + "saved streams that this boundary does not have");
  coders_ = std::move(loaded);
  return Status::ok();
}

}  // namespace thinwire
