// BoundaryLoop: encodes, decodes, and rolls both ends back.
// SPDX-License-Identifier: Apache-2.0
#include "train/pipeline/boundary_loop.h"

#include <span>
#include <utility>

#include "train/tensor_floats.h"

namespace thinwire {

BoundaryLoop::BoundaryLoop(const BoundarySpec& spec)
    : sender_(std::move(make_boundary_sender(spec)).value()),
      receiver_(std::move(make_boundary_receiver(spec)).value()),
      message_(sender_->max_message_size()),
      visit_{.step = spec.first_step} {}

torch::Tensor BoundaryLoop::pass(const torch::Tensor& values) {
  const torch::Tensor sent = values.contiguous();
  torch::Tensor arrived = torch::empty(sent.sizes());
  const Sent size = sender_->encode(floats_of(sent), visit_, message_);
  const Status status =
      receiver_->decode(std::span(message_).first(size.size), visit_, floats_of(arrived));
  sender_->rollback();
  receiver_->rollback();
  if (status.code() == ErrorCode::kNonFinite) return values;
  status.or_throw();
  return arrived;
}

}  // namespace thinwire
