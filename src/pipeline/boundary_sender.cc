// The sending end: subtracts what the other end already has, and encodes stream by stream.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <optional>

#include "core/check.h"
#include "kernel/memory_passes.h"
#include "kernel/vector_moments.h"
#include "pipeline/body_decoder.h"
#include "pipeline/boundary_ends.h"
#include "pipeline/boundary_message.h"
#include "pipeline/end_state.h"
#include "pipeline/estimates.h"
#include "pipeline/step_marks.h"
#include "pipeline/stream_coders.h"

namespace thinwire {
namespace {

class Sender final : public BoundarySender {
 public:
  explicit Sender(BoundaryPlan plan)
      : plan_(std::move(plan)),
        max_size_(kBodyOffset + plan_.max_body()),
        marks_(plan_),
        coders_(plan_),
        decoder_(plan_) {
    if (!plan_.estimates) return;
    estimates_.emplace(plan_);
    coded_.resize(plan_.batch_count());
    if (plan_.estimates->first)
      first_encoder_ = plan_.estimates->first->make_encoder(
          single_tensor({.name = plan_.spec.name, .shape = {plan_.sample_count}}));
  }

  size_t max_message_size() const override { return max_size_; }

  Sent encode(std::span<const float> values, const Visit& visit,
              std::span<std::byte> out) override {
    THINWIRE_CHECK(out.size() >= max_size_, plan_.origin() + "too few bytes for a message");
    follow(visit.step);
    const size_t samples = marks_.begin(values.size(), visit);
    const auto body = out.subspan(kBodyOffset);
    const uint64_t history = estimates_ ? estimates_->history() : 0;
    size_t full = 0;
    const std::optional<size_t> size = estimates_
                                           ? write_changes(values, visit, samples, body, full)
                                           : write_streams(values, visit, {}, samples, body);
    if (!size) return {.size = seal_non_finite(plan_, visit, values.size(), out), .finite = false};
    const Sent sent{.size = seal_message(plan_, visit, values.size(), history, full, *size, out),
                    .full = full};
    if (estimates_) estimates_->remember(visit, message_checksum(out));
    if (plan_.spec.note_positions)
      decoder_.note(body.first(*size), samples, visit, *plan_.spec.note_positions).or_throw();
    marks_.done();
    return sent;
  }

  void commit() override {
    marks_.commit();
    coders_.commit();
    if (estimates_) estimates_->commit();
    follow(marks_.next_step());  // what is saved now is read by the end of the next step
  }
  void rollback() override {
    marks_.rollback();
    coders_.rollback();
    if (estimates_) estimates_->rollback();
    follow(marks_.next_step());
  }
  void invalidate() override {
    if (estimates_) estimates_->invalidate();
  }

  StateArrays save() const override { return save_end(&coders_, estimates_); }
  Status load(const StateArrays& arrays) override {
    marks_.rollback();
    return load_end(arrays, &coders_, estimates_);
  }

 private:
  void follow(uint64_t step) {
    if (!plan_.follow(step)) return;
    coders_.change_codec();
    decoder_.change_codec();
  }

  std::span<float> sample(std::span<float> values, size_t i) const {
    return values.subspan(i * plan_.sample_count, plan_.sample_count);
  }
  std::span<const float> sample(std::span<const float> values, size_t i) const {
    return values.subspan(i * plan_.sample_count, plan_.sample_count);
  }

  // Those that were there before as changes of their estimates, the others in full. The estimates
  // become what the receiver makes of it. Nothing if that is not finite.
  std::optional<size_t> write_changes(std::span<const float> values, const Visit& visit,
                                      size_t samples, std::span<std::byte> body, size_t& full) {
    Estimates::Recalled& recalled = estimates_->recall(visit, samples);
    if (!kernel::moments(values).finite) return std::nullopt;
    full = samples - recalled.held;
    size_t written = 0;
    for (size_t i = 0; i < samples; ++i) {
      const auto x = sample(values, recalled.order[i]);
      if (i < recalled.held)
        kernel::weighted_sum(1, x, -1, sample(recalled.values, i), sample(std::span(coded_), i));
      else
        written += first_encoder_->encode({.values = x}, {}, body.subspan(written), {}).size;
    }
    const auto changes = std::span(coded_).first(recalled.held * plan_.sample_count);
    const auto streams =
        write_streams(changes, visit, recalled.order, recalled.held, body.subspan(written));
    if (!streams) return std::nullopt;
    written += *streams;
    if (!decoder_.add(body.first(written), recalled.held, recalled.values)) return std::nullopt;
    return written;
  }

  // `order`: the places of the samples, unless they are as they come.
  std::optional<size_t> write_streams(std::span<const float> values, const Visit& visit,
                                      std::span<const uint32_t> order, size_t samples,
                                      std::span<std::byte> body) {
    if (samples == 0) return 0;
    if (!plan_.spec.per_sample) return coders_.encode(values, visit, 0, samples, body);
    size_t written = 0;
    for (size_t i = 0; i < samples; ++i) {
      const size_t place = order.empty() ? i : order[i];
      const auto size = coders_.encode(sample(values, i), visit, place, 1, body.subspan(written));
      if (!size) return std::nullopt;
      written += *size;
    }
    return written;
  }

  BoundaryPlan plan_;
  const size_t max_size_;
  StepMarks marks_;
  StreamCoders coders_;
  BodyDecoder decoder_;
  std::optional<Estimates> estimates_;
  std::unique_ptr<Encoder> first_encoder_;
  AlignedVector<float> coded_;  // changes of estimates
};

}  // namespace

std::unique_ptr<BoundarySender> make_sender(BoundaryPlan plan) {
  return std::make_unique<Sender>(std::move(plan));
}

}  // namespace thinwire
