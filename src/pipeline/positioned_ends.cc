// Gradients at the positions that their activations' messages kept: values only, both ends know
// where [Rudakov et al., arXiv:2401.07788, the shared masks of the GPT-2 runs].
//
// The body is one stream, whatever per_sample says: u32 size, then the values in ascending order of
// position, each 4 or 2 bytes.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "core/bytes.h"
#include "core/check.h"
#include "kernel/vector_moments.h"
#include "pipeline/boundary_ends.h"
#include "pipeline/boundary_message.h"
#include "pipeline/kept_positions.h"
#include "pipeline/step_marks.h"

namespace thinwire {
namespace {

// The gradient's tensor is the activation's: positions are below its count.
const std::vector<uint32_t>& noted_positions(const BoundaryPlan& plan, const Visit& visit,
                                             size_t count) {
  const std::vector<uint32_t>* positions = plan.spec.at_positions->find(visit);
  THINWIRE_CHECK(positions != nullptr,
                 plan.origin() + "no activation of this micro-batch and step was noted");
  THINWIRE_CHECK(positions->empty() || positions->back() < count,
                 plan.origin() + "the noted activation was larger");
  return *positions;
}

class PositionedSender final : public BoundarySender {
 public:
  explicit PositionedSender(BoundaryPlan plan)
      : plan_(std::move(plan)),
        max_size_(kBodyOffset + plan_.max_body()),
        marks_(plan_),
        encoder_(plan_.codec->make_encoder(plan_.stream(1))) {
    values_.reserve(plan_.batch_count());
  }

  size_t max_message_size() const override { return max_size_; }

  Sent encode(std::span<const float> values, const Visit& visit,
              std::span<std::byte> out) override {
    THINWIRE_CHECK(out.size() >= max_size_, plan_.origin() + "too few bytes for a message");
    if (plan_.follow(visit.step)) encoder_ = plan_.codec->make_encoder(plan_.stream(1));
    // An activation that was not finite has no positions, and must have such a gradient.
    if (plan_.spec.at_positions->find(visit) == nullptr && !kernel::moments(values).finite) {
      marks_.begin(values.size(), visit);
      return {.size = seal_non_finite(plan_, visit, values.size(), out), .finite = false};
    }
    const auto& positions = noted_positions(plan_, visit, values.size());
    marks_.begin(values.size(), visit);
    values_.clear();
    for (const uint32_t position : positions) values_.push_back(values[position]);
    if (!kernel::moments(values).finite)
      return {.size = seal_non_finite(plan_, visit, values.size(), out), .finite = false};
    ByteWriter body(out.subspan(kBodyOffset));
    const auto size_field = body.take(sizeof(uint32_t));
    const size_t size =
        encoder_->encode({.values = values_}, {}, out.subspan(kBodyOffset + body.written()), {})
            .size;
    ByteWriter(size_field).put(static_cast<uint32_t>(size));
    marks_.done();
    return {.size = seal_message(plan_, visit, values.size(), 0, 0, body.written() + size, out)};
  }

  void commit() override { marks_.commit(); }
  void rollback() override { marks_.rollback(); }
  void invalidate() override {}

 private:
  BoundaryPlan plan_;
  const size_t max_size_;
  StepMarks marks_;
  std::unique_ptr<Encoder> encoder_;  // of values one by one: takes any number
  std::vector<float> values_;
};

class PositionedReceiver final : public BoundaryReceiver {
 public:
  explicit PositionedReceiver(BoundaryPlan plan)
      : plan_(std::move(plan)),
        marks_(plan_),
        decoder_(plan_.codec->make_decoder(plan_.stream(1))) {
    values_.reserve(plan_.batch_count());
  }

  Status decode(std::span<const std::byte> bytes, const Visit& visit,
                std::span<float> values) override {
    if (plan_.follow(visit.step)) decoder_ = plan_.codec->make_decoder(plan_.stream(1));
    Result<OpenedMessage> opened = open_message(plan_, visit, values.size(), 0, bytes);
    if (!opened) {
      marks_.begin(values.size(), visit);
      return opened.status();
    }
    const auto& positions = noted_positions(plan_, visit, values.size());
    marks_.begin(values.size(), visit);
    ByteReader reader(opened.value().body);
    const auto payload = reader.take(reader.get<uint32_t>());
    if (!reader.ok() || reader.remaining() > 0 || opened.value().full > 0)
      return Status::fail(ErrorCode::kBadLength, plan_.origin() + "not one stream");
    values_.assign(positions.size(), -0.0f);
    if (Status status = decoder_->decode_add(payload, 1.0f, values_); !status)
      return Status::fail(status.code(), plan_.origin() + status.message());
    std::fill(values.begin(), values.end(), 0.0f);
    for (size_t i = 0; i < positions.size(); ++i) values[positions[i]] = values_[i];
    marks_.done();
    return Status::ok();
  }

  void commit() override { marks_.commit(); }
  void rollback() override { marks_.rollback(); }
  void invalidate() override {}

 private:
  BoundaryPlan plan_;
  StepMarks marks_;
  std::unique_ptr<const Decoder> decoder_;
  std::vector<float> values_;
};

}  // namespace

std::unique_ptr<BoundarySender> make_positioned_sender(BoundaryPlan plan) {
  return std::make_unique<PositionedSender>(std::move(plan));
}
std::unique_ptr<BoundaryReceiver> make_positioned_receiver(BoundaryPlan plan) {
  return std::make_unique<PositionedReceiver>(std::move(plan));
}

}  // namespace thinwire
