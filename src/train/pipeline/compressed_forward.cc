// Sends activations through the boundaries' codecs and back, in one process.
// SPDX-License-Identifier: Apache-2.0
#include "train/pipeline/compressed_forward.h"

#include <torch/torch.h>

#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "train/pipeline/tensor_floats.h"
#include "train/sequence.h"

namespace thinwire {
namespace {

// Both ends of a boundary, with nothing between them.
class Loop {
 public:
  explicit Loop(const BoundarySpec& spec)
      : sender_(std::move(make_boundary_sender(spec)).value()),
        receiver_(std::move(make_boundary_receiver(spec)).value()),
        message_(sender_->max_message_size()),
        visit_{.step = spec.first_step} {}

  torch::Tensor pass(const torch::Tensor& values) {
    const torch::Tensor sent = values.contiguous();
    torch::Tensor arrived = torch::empty(sent.sizes());
    const Sent size = sender_->encode(floats_of(sent), visit_, message_);
    const Status status =
        receiver_->decode(std::span(message_).first(size.size), visit_, floats_of(arrived));
    sender_->rollback();
    receiver_->rollback();
    if (status.code() == ErrorCode::kNonFinite) return values;  // to be judged as what it is
    status.or_throw();
    return arrived;
  }

 private:
  std::unique_ptr<BoundarySender> sender_;
  std::unique_ptr<BoundaryReceiver> receiver_;
  std::vector<std::byte> message_;
  Visit visit_;
};

}  // namespace

Task compressed_task(const PipelineOptions& options, const StagePlan& plan, const Task& task,
                     uint64_t samples, uint64_t step, uint64_t steps_per_epoch) {
  auto loops = std::make_shared<std::vector<Loop>>();
  for (size_t cut = 0; cut + 1 < plan.stages; ++cut) {
    BoundarySpec spec = boundary_options(options, cut, /*backward=*/false);
    spec.name = plan.cut_name(task, cut) + "/test";
    spec.memory = "none";
    spec.cache_budget = 0;
    spec.sample_shape = plan.crossing[cut];
    spec.samples = samples;
    spec.steps_per_epoch = steps_per_epoch;
    spec.first_step = step;
    loops->emplace_back(spec);
  }
  Task compressed = task;
  compressed.forward = [loops, &plan, layers = task.layers](const torch::Tensor& inputs) {
    torch::Tensor x = inputs;
    for (size_t stage = 0; stage < plan.stages; ++stage) {
      if (stage > 0) x = (*loops)[stage - 1].pass(x);
      for (size_t i = plan.starts[stage]; i < plan.starts[stage + 1]; ++i)
        x = run_layer(layers[i], i, x);
    }
    return x;
  };
  return compressed;
}

}  // namespace thinwire
