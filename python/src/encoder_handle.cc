// EncoderHandle: when an encode counts, and what is refused before it begins.
// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "codec_handles.h"

namespace thinwire::python {
namespace {

constexpr const char* kWho = "encoder";

}  // namespace

EncoderHandle::EncoderHandle(std::shared_ptr<const Codec> codec, StreamSpec stream,
                             bool auto_commit)
    : codec_(std::move(codec)),
      count_(stream.count()),
      capacity_(codec_->max_encoded_size(stream)),
      encoder_(codec_->make_encoder(stream)),
      auto_commit_(auto_commit) {}

Encoded EncoderHandle::encode(const Signal& signal, const Call& call, std::span<std::byte> out,
                              std::span<float> rest) {
  const UseMark::Guard guard(use_, kWho);
  if (waiting_)
    throw Error(ErrorCode::kContract,
                "encoder: the last encode waits for commit() or rollback() (auto_commit is off)");
  if (signal.values.size() != count_)
    throw Error(ErrorCode::kContract, "encoder: not as many values as the stream has");
  if (out.size() < capacity_)
    throw Error(ErrorCode::kContract, "encoder: out has " + std::to_string(out.size()) +
                                          " bytes, a payload may need " +
                                          std::to_string(capacity_));
  const Encoded encoded = encoder_->encode(signal, call, out, rest);
  if (auto_commit_)
    encoder_->commit();
  else
    waiting_ = true;
  return encoded;
}

void EncoderHandle::commit() {
  const UseMark::Guard guard(use_, kWho);
  if (waiting_) encoder_->commit();
  waiting_ = false;
}

void EncoderHandle::rollback() {
  const UseMark::Guard guard(use_, kWho);
  if (auto_commit_)
    throw Error(ErrorCode::kContract,
                "encoder: rollback() needs auto_commit=False; this one's encodes count at once");
  if (waiting_) encoder_->rollback();
  waiting_ = false;
}

StateArrays EncoderHandle::save() {
  const UseMark::Guard guard(use_, kWho);
  StateArrays arrays = encoder_->save();
  seal_state(arrays);
  return arrays;
}

void EncoderHandle::load(const StateArrays& arrays) {
  const UseMark::Guard guard(use_, kWho);
  check_seal(arrays).or_throw();
  if (waiting_) encoder_->rollback();
  waiting_ = false;
  encoder_->load(arrays).or_throw();
}

Signal checked_signal(size_t count, std::span<const float> values, std::span<const float> fresh) {
  if (values.size() != count || (!fresh.empty() && fresh.size() != count))
    throw Error(ErrorCode::kContract, "encoder: not as many values as the stream has");
  const Moments moments = measure(values);
  const auto refuse = [](const char* which) {
    throw Error(ErrorCode::kNonFinite,
                std::string("encoder: ") + which + " holds a NaN or infinity");
  };
  if (!moments.finite) refuse("values");
  if (!fresh.empty() && !measure(fresh).finite) refuse("fresh");
  return {.values = values, .fresh = fresh, .moments = moments};
}

}  // namespace thinwire::python
