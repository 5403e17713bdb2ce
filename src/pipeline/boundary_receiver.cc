// The receiving end of a boundary.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <optional>

#include "core/check.h"
#include "kernel/axpy.h"
#include "pipeline/body_decoder.h"
#include "pipeline/boundary_ends.h"
#include "pipeline/boundary_message.h"
#include "pipeline/end_state.h"
#include "pipeline/estimates.h"
#include "pipeline/step_marks.h"

namespace thinwire {
namespace {

class Receiver final : public BoundaryReceiver {
 public:
  explicit Receiver(BoundaryPlan plan) : plan_(std::move(plan)), marks_(plan_), decoder_(plan_) {
    if (plan_.estimates) estimates_.emplace(plan_);
  }

  Status decode(std::span<const std::byte> bytes, const Visit& visit,
                std::span<float> values) override {
    if (plan_.follow(visit.step)) decoder_.change_codec();
    const size_t samples = marks_.begin(values.size(), visit);
    const uint64_t history = estimates_ ? estimates_->history() : 0;
    Estimates::Recalled* recalled = estimates_ ? &estimates_->recall(visit, samples) : nullptr;
    Result<OpenedMessage> opened = open_message(plan_, visit, values.size(), history, bytes);
    if (!opened) return opened.status();
    const auto [full, body] = opened.value();
    if (full != (recalled != nullptr ? samples - recalled->held : 0))
      return Status::fail(ErrorCode::kMismatch,
                          plan_.origin() + "another number of first visits than at this end");
    Status status = recalled != nullptr ? take_changes(body, *recalled, values)
                                        : take_values(body, samples, visit, values);
    if (!status) return status;
    if (estimates_) estimates_->remember(visit, message_checksum(bytes));
    marks_.done();
    return status;
  }

  void commit() override {
    marks_.commit();
    if (estimates_) estimates_->commit();
  }
  void rollback() override {
    marks_.rollback();
    if (estimates_) estimates_->rollback();
  }
  void invalidate() override {
    if (estimates_) estimates_->invalidate();
  }

  StateArrays save() const override { return save_end(nullptr, estimates_); }
  Status load(const StateArrays& arrays) override {
    marks_.rollback();
    return load_end(arrays, nullptr, estimates_);
  }

 private:
  Status take_values(std::span<const std::byte> body, size_t samples, const Visit& visit,
                     std::span<float> values) {
    // Adding a value to -0 gives that value, so that nothing is lost of a lossless codec; what a
    // sparse one does not send is 0.
    kernel::fill(values, plan_.codec->info().sparse ? 0.0f : -0.0f);
    if (Status status = decoder_.add(body, samples, values); !status) return status;
    if (!plan_.spec.note_positions) return Status::ok();
    return decoder_.note(body, samples, visit, *plan_.spec.note_positions);
  }

  Status take_changes(std::span<const std::byte> body, Estimates::Recalled& recalled,
                      std::span<float> values) {
    if (Status status = decoder_.add(body, recalled.held, recalled.values); !status) return status;
    const size_t count = plan_.sample_count;
    for (size_t i = 0; i < recalled.order.size(); ++i) {
      const auto from = recalled.values.subspan(i * count, count);
      std::copy(from.begin(), from.end(), values.subspan(recalled.order[i] * count).begin());
    }
    return Status::ok();
  }

  BoundaryPlan plan_;
  StepMarks marks_;
  BodyDecoder decoder_;
  std::optional<Estimates> estimates_;
};

}  // namespace

std::unique_ptr<BoundaryReceiver> make_receiver(BoundaryPlan plan) {
  return std::make_unique<Receiver>(std::move(plan));
}

}  // namespace thinwire
