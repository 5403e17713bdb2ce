// Finds the shapes at the cuts by a forward pass, and the costs of layers by counting or by time.
// SPDX-License-Identifier: Apache-2.0
#include "train/pipeline/stage_plan.h"

#include <torch/torch.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include "pipeline/stage_cut.h"
#include "train/elapsed_time.h"
#include "train/pipeline/autoencoder.h"
#include "train/sequence.h"

namespace thinwire {
namespace {

// Where the network is cut, for a resumed run.
class SavedCut final : public Stateful {
 public:
  std::vector<int64_t> starts;  // empty: not cut yet

  StateArrays save() const override {
    return {make_state("starts", std::span(starts), OnResize::kCopy)};
  }
  Status load(const StateArrays& arrays) override {
    if (arrays.size() != 1 || arrays[0].name != "starts" || arrays[0].shape.size() != 1)
      return Status::fail(ErrorCode::kCorrupt, "no 'starts' of stages");
    starts.resize(arrays[0].shape[0]);
    return copy_state(arrays, "starts", std::span(starts));
  }
};

struct LayerFacts {
  std::vector<uint64_t> shape;  // of one sample of what comes out
  double parameters = 0;
  double seconds = 0;
};

// Empty where the output cannot cross a boundary.
std::vector<uint64_t> sample_shape(const torch::Tensor& output, uint64_t samples) {
  if (output.dim() < 1 || static_cast<uint64_t>(output.size(0)) != samples ||
      output.scalar_type() != torch::kFloat32 || output.numel() == 0)
    return {};
  std::vector<uint64_t> shape;
  for (const int64_t extent : output.sizes().slice(1))
    shape.push_back(static_cast<uint64_t>(extent));
  if (shape.empty()) shape.push_back(1);
  return shape;
}

// In evaluation mode, which leaves the running statistics of batch norm as they are.
std::vector<LayerFacts> try_layers(const Task& task, const Dataset& data, uint64_t samples) {
  const torch::NoGradGuard no_grad;
  const bool training = task.module->is_training();
  task.module->eval();
  std::vector<uint64_t> ids(std::min(samples, data.size()));
  std::iota(ids.begin(), ids.end(), uint64_t{0});
  torch::Tensor x = data.fetch(ids, {}).inputs;
  std::vector<LayerFacts> facts;
  for (size_t i = 0; i < task.layers.size(); ++i) {
    const Layer& layer = task.layers[i];
    LayerFacts fact;
    const torch::Tensor inputs = x;
    for (int turn = 0; turn < 2; ++turn) {  // the first also allocates
      const ElapsedTime watch;
      x = run_layer(layer, i, inputs);
      fact.seconds = watch.seconds();
    }
    fact.shape = sample_shape(x, ids.size());
    if (layer.module)
      for (const torch::Tensor& weight : layer.module->parameters())
        fact.parameters += static_cast<double>(weight.numel());
    facts.push_back(std::move(fact));
  }
  task.module->train(training);
  return facts;
}

std::vector<std::string> names_in(const std::string& text) {
  std::vector<std::string> names(1);
  for (const char c : text) {
    if (c == ',')
      names.emplace_back();
    else if (c != ' ')
      names.back() += c;
  }
  return names;
}

std::vector<size_t> choose_cut(const PipelineOptions& options, const Task& task,
                               const std::vector<LayerFacts>& facts) {
  const auto or_throw = [](Result<std::vector<size_t>> cut) {
    if (!cut) throw Error(cut.status().code(), "pipeline.cut: " + cut.status().message());
    return std::move(cut).value();
  };
  if (options.cut == "parameters" || options.cut == "time") {
    std::vector<double> costs;
    for (const LayerFacts& fact : facts)
      costs.push_back(options.cut == "time" ? fact.seconds : fact.parameters);
    return or_throw(balanced_cut(costs, options.stages));
  }
  std::vector<std::string> layers;
  for (const Layer& layer : task.layers) layers.push_back(layer.name);
  const std::vector<std::string> names = names_in(options.cut);
  if (names.size() + 1 != options.stages)
    throw Error(ErrorCode::kBadOption, "pipeline.cut: names " + std::to_string(names.size()) +
                                           " layers where " + std::to_string(options.stages) +
                                           " stages have " + std::to_string(options.stages - 1) +
                                           " cuts between them");
  return or_throw(named_cut(layers, names));
}

// What a checkpoint says may be of another network.
std::vector<int64_t> checked(const std::vector<int64_t>& starts, size_t stages, size_t layers) {
  bool good = starts.size() == stages && starts[0] == 0;
  for (size_t i = 1; good && i < stages; ++i)
    good = starts[i] > starts[i - 1] && starts[i] < static_cast<int64_t>(layers);
  if (!good)
    throw AgreedError(ErrorCode::kMismatch, "checkpoint: its stages are not those of this network");
  return starts;
}

void check_layers(const Task& task) {
  if (task.layers.empty())
    throw AgreedError(ErrorCode::kBadOption,
                      "pipeline.stages: this network is not a sequence of layers; of thinwire's "
                      "own, mlp, dnn-speech, resnet8, resnet20, resnet18 and gpt-mini are");
}

void check_ranks(const PipelineOptions& options, const Group& group, const Task& task) {
  const auto ranks = static_cast<size_t>(group.size());
  if (ranks % options.stages != 0)
    throw AgreedError(ErrorCode::kBadOption, "pipeline.stages: " + std::to_string(options.stages) +
                                                 " stages need as many workers, or a multiple of "
                                                 "that, not " +
                                                 std::to_string(ranks));
  check_layers(task);
}

// Its gradient would come from two stages, and each would step its own copy.
void refuse_shared_weights(const std::vector<size_t>& starts, const Task& task) {
  std::map<const void*, std::pair<size_t, std::string>> owners;  // stage, and the layer's name
  for (size_t stage = 0; stage + 1 < starts.size(); ++stage)
    for (size_t i = starts[stage]; i < starts[stage + 1]; ++i) {
      const Layer& layer = task.layers[i];
      if (!layer.module) continue;
      for (const torch::Tensor& weight : layer.module->parameters()) {
        const auto& [owner, name] =
            owners.try_emplace(weight.unsafeGetTensorImpl(), stage, layer.name).first->second;
        if (owner != stage)
          throw AgreedError(ErrorCode::kUnsupported,
                            "pipeline.cut: layers '" + name + "' and '" + layer.name +
                                "' share a weight, and are in stages " + std::to_string(owner) +
                                " and " + std::to_string(stage) +
                                "; cut where both stay together, or give each its own");
      }
    }
}

const std::string& name_in_front(const std::vector<size_t>& starts, const Task& task, size_t cut) {
  return task.layers[starts[cut + 1] - 1].name;
}

// The shape behind each stage but the last.
std::vector<std::vector<uint64_t>> crossing_of(const std::vector<size_t>& starts, const Task& task,
                                               const std::vector<LayerFacts>& facts) {
  std::vector<std::vector<uint64_t>> crossing;
  for (size_t cut = 0; cut + 2 < starts.size(); ++cut) {
    crossing.push_back(facts[starts[cut + 1] - 1].shape);
    if (crossing.back().empty())
      throw AgreedError(
          ErrorCode::kUnsupported,
          "pipeline.cut: layer '" + name_in_front(starts, task, cut) +
              "' does not give a float32 tensor whose first dimension is the samples");
  }
  return crossing;
}

}  // namespace

std::shared_ptr<torch::nn::Module> stage_module(const Task& task, size_t begin, size_t end) {
  auto module = std::make_shared<torch::nn::Module>();
  for (size_t i = begin; i < end; ++i)
    if (task.layers[i].module) module->register_module(task.layers[i].name, task.layers[i].module);
  return module;
}

StageCut cut_stages(const PipelineOptions& options, const Task& task, const Dataset& data,
                    uint64_t samples) {
  check_layers(task);
  const std::vector<LayerFacts> facts = try_layers(task, data, samples);
  StageCut cut{.starts = choose_cut(options, task, facts), .crossing = {}};
  cut.starts.push_back(task.layers.size());
  refuse_shared_weights(cut.starts, task);
  cut.crossing = crossing_of(cut.starts, task, facts);
  return cut;
}

StagePlan plan_stages(const PipelineOptions& options, Group& group, Store& store, const Task& task,
                      const Dataset& data, uint64_t samples) {
  check_ranks(options, group, task);
  StagePlan plan;
  plan.stages = options.stages;
  const auto rank = static_cast<size_t>(group.rank());
  plan.stage = rank % plan.stages;
  plan.replicas = static_cast<size_t>(group.size()) / plan.stages;
  plan.replica = rank / plan.stages;

  auto& saved = store.open<SavedCut>("pipeline/cut", [] { return std::make_unique<SavedCut>(); });
  std::vector<int64_t> starts(plan.stages);
  std::vector<LayerFacts> facts;
  together(group, [&] {
    facts = try_layers(task, data, samples);
    const auto chosen = choose_cut(options, task, facts);
    std::copy(chosen.begin(), chosen.end(), starts.begin());
  });
  if (!saved.starts.empty()) starts = checked(saved.starts, plan.stages, task.layers.size());
  group.broadcast(std::as_writable_bytes(std::span(starts)), 0);  // clocks differ
  saved.starts = starts;
  plan.starts.assign(starts.begin(), starts.end());
  plan.starts.push_back(task.layers.size());
  refuse_shared_weights(plan.starts, task);
  plan.crossing = crossing_of(plan.starts, task, facts);
  for (size_t cut = 0; cut + 1 < plan.stages; ++cut)
    plan.encoded_from.push_back(shape_before_encoder(
        options, cut, task.layers[plan.starts[cut + 1] - 1], plan.crossing[cut]));
  return plan;
}

}  // namespace thinwire
