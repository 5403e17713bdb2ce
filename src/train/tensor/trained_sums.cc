// Sums with autograd: a sum forward whose gradient passes as it is, and the opposite.
// SPDX-License-Identifier: Apache-2.0
#include "train/tensor/trained_sums.h"

#include <torch/torch.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "train/draw_context.h"
#include "train/sequence.h"

namespace thinwire {
namespace {

// `sum` in the place of this rank's part of it; every part gets the gradient of the sum.
class InPlaceOf final : public torch::autograd::Function<InPlaceOf> {
 public:
  static torch::Tensor forward(torch::autograd::AutogradContext* /*context*/,
                               const torch::Tensor& /*part*/, const torch::Tensor& sum) {
    return sum;
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* /*context*/,
                                                 torch::autograd::variable_list gradients) {
    return {gradients[0], torch::Tensor()};
  }
};

// Notes the shapes of what would be summed.
class ShapeProbe final : public LayerSums {
 public:
  explicit ShapeProbe(uint64_t samples) : samples_(samples) {}

  torch::Tensor to_ranks(const torch::Tensor& x, size_t pair) override {
    at(pair).backward = sample_shape(x);
    return x;
  }
  torch::Tensor product(const SummedLinear& second, const torch::Tensor& x) override {
    const torch::Tensor summed = second.to_sum(torch::linear(x, second.weight));
    at(second.pair).forward = sample_shape(summed);
    return second.from_sum(summed);
  }
  std::vector<SumShapes> take() { return std::move(shapes_); }

 private:
  SumShapes& at(size_t pair) {
    if (shapes_.size() <= pair) shapes_.resize(pair + 1);
    return shapes_[pair];
  }
  std::vector<uint64_t> sample_shape(const torch::Tensor& x) const {
    if (x.dim() < 2 || static_cast<uint64_t>(x.size(0)) != samples_ ||
        x.scalar_type() != torch::kFloat32 || x.numel() == 0)
      throw Error(ErrorCode::kUnsupported,
                  "tensor.ranks: what ranks sum is not a float32 tensor whose first dimension is "
                  "the samples");
    std::vector<uint64_t> shape;
    for (const int64_t extent : x.sizes().slice(1)) shape.push_back(static_cast<uint64_t>(extent));
    return shape;
  }

  const uint64_t samples_;
  std::vector<SumShapes> shapes_;
};

}  // namespace

std::vector<SumShapes> sum_shapes(Group& group, const TensorPlan& plan, const Task& task,
                                  const Dataset& data, uint64_t samples) {
  std::vector<SumShapes> shapes;
  together(group, [&] {
    const torch::NoGradGuard no_grad;
    const bool training = task.module->is_training();
    task.module->eval();
    std::vector<uint64_t> ids(std::min(samples, data.size()));
    std::iota(ids.begin(), ids.end(), uint64_t{0});
    torch::Tensor x = data.fetch(ids, {}).inputs;
    for (size_t i = 0; i <= plan.split.back(); ++i) {
      SplitLayer* split = split_layer_of(task.layers[i]);
      if (split == nullptr) {
        x = run_layer(task.layers[i], i, x);
        continue;
      }
      ShapeProbe probe(ids.size());
      x = split->forward_with(x, probe);
      std::ranges::move(probe.take(), std::back_inserter(shapes));
    }
    task.module->train(training);
  });
  return shapes;
}

std::string pair_name(const Task& task, const TensorPlan& plan, size_t nth_split, size_t pair) {
  const Layer& layer = task.layers[plan.split[nth_split]];
  return layer.name + "." + split_layer_of(layer)->pairs()[pair];
}

BoundarySpec sum_spec(const TensorParallelOptions& options, const TensorPlan& plan,
                      size_t nth_split, const std::string& pair, const SumShapes& shapes,
                      const StepShape& step, bool backward) {
  BoundarySpec spec = sum_options(options, plan.compresses(nth_split), backward);
  spec.name = pair + (backward ? "/backward" : "/forward");
  spec.sample_shape = backward ? shapes.backward : shapes.forward;
  spec.samples = step.samples;
  spec.micro_batches = step.micro_batches;
  spec.seed = step.seed;
  spec.steps_per_epoch = step.steps_per_epoch;
  spec.first_step = step.first_step;
  return spec;
}

// The sums of one layer, from pair number `first` of the network on.
class TrainedSums::Layer final : public LayerSums {
 public:
  Layer(TrainedSums& all, size_t first) : all_(all), first_(first) {}

  torch::Tensor to_ranks(const torch::Tensor& x, size_t pair) override {
    if (!x.requires_grad()) return x;  // on all ranks: there are no weights in front of it
    const torch::Tensor copy = x.view_as(x);
    copy.register_hook([&all = all_, number = first_ + pair](const torch::Tensor& gradient) {
      return all.sum(number, /*backward=*/true, gradient);
    });
    return copy;
  }
  torch::Tensor product(const SummedLinear& second, const torch::Tensor& x) override {
    const torch::Tensor mine = second.to_sum(torch::linear(x, second.weight));
    const torch::Tensor sum = all_.sum(first_ + second.pair, /*backward=*/false, mine);
    return second.from_sum(InPlaceOf::apply(mine, sum));
  }

 private:
  TrainedSums& all_;
  const size_t first_;
};

TrainedSums::TrainedSums(const TensorParallelOptions& options, const TensorPlan& plan,
                         const Task& task, const std::vector<SumShapes>& shapes,
                         const StepShape& step, Group& ranks, Store& store)
    : ranks_(ranks), layers_(task.layers.size(), nullptr) {
  for (size_t nth = 0; nth < plan.split.size(); ++nth) {
    own_.push_back(std::make_unique<Layer>(*this, names_.size()));
    layers_[plan.split[nth]] = own_.back().get();
    const size_t pairs = split_layer_of(task.layers[plan.split[nth]])->pairs().size();
    for (size_t pair = 0; pair < pairs; ++pair) {
      names_.push_back(pair_name(task, plan, nth, pair));
      for (const bool backward : {false, true})
        sums_.push_back(std::make_unique<RankSum>(
            sum_spec(options, plan, nth, names_.back(), shapes[names_.size() - 1], step, backward),
            ranks, plan.first_rank(), static_cast<uint32_t>(sums_.size()), store));
    }
  }
  clear();
}

TrainedSums::~TrainedSums() = default;

torch::Tensor TrainedSums::sum(size_t pair, bool backward, const torch::Tensor& values) {
  const torch::NoGradGuard no_grad;
  const size_t number = 2 * pair + (backward ? 1 : 0);
  bool finite = true;
  const torch::Tensor sum =
      sums_[number]->sum(values.detach().contiguous(), visit_, counters_[number], finite);
  const uint64_t place = place_++;
  if (!finite && spoiled_.place == UINT64_MAX)
    spoiled_ = {.place = place, .pair = static_cast<uint32_t>(pair), .backward = backward};
  return sum;
}

void TrainedSums::commit() {
  for (const auto& sum : sums_) sum->commit();
  clear();
}

void TrainedSums::rollback() {
  for (const auto& sum : sums_) sum->rollback();
  clear();
}

void TrainedSums::clear() {
  counters_.assign(sums_.size(), {});
  place_ = 0;
  spoiled_ = {};
}

}  // namespace thinwire
