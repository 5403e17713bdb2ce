// factor_model: looks at the outputs of a trained network's layers, factors their weights, and
// tests what came of it.
// SPDX-License-Identifier: Apache-2.0
#include <torch/torch.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <span>
#include <utility>

#include "thinwire/factor.h"
#include "thinwire/group.h"
#include "thinwire/trainer.h"
#include "train/checkpoint.h"
#include "train/data/data_sets.h"
#include "train/durable_file.h"
#include "train/evaluate.h"
#include "train/layer_inputs.h"
#include "train/models/models.h"
#include "train/named_tensors.h"
#include "train/output_subspace.h"
#include "train/pipeline/autoencoder.h"
#include "train/recipe_parts.h"
#include "train/safetensors.h"
#include "train/saved_model.h"
#include "train/saved_run.h"
#include "train/tensor/tensor_autoencoders.h"
#include "train/thin_factors.h"

namespace thinwire {
namespace {

namespace fs = std::filesystem;

// One of the two kinds, and what calibration has seen of it.
struct LayerToFactor {
  std::string name;
  torch::nn::LinearImpl* linear = nullptr;
  torch::nn::EmbeddingImpl* embedding = nullptr;
  VectorMoments moments = {};

  torch::Tensor& weight() const { return linear != nullptr ? linear->weight : embedding->weight; }
  torch::Tensor bias() const { return linear != nullptr ? linear->bias : torch::Tensor(); }
  // The smaller covariance of the two.
  bool by_inputs() const { return linear != nullptr && weight().size(0) > weight().size(1); }

  void add(const torch::Tensor& inputs) {
    if (embedding != nullptr) {
      moments.add(weight().index_select(0, inputs.flatten()));
      return;
    }
    const torch::Tensor x = inputs.flatten(0, -2).to(torch::kFloat64);
    moments.add(by_inputs() ? x : x.mm(weight().t().to(torch::kFloat64)));
  }

  OutputSubspace subspace() const {
    if (by_inputs()) return subspace_of_inputs(moments, weight(), bias());
    OutputSubspace outputs = subspace_of_outputs(moments);
    if (bias().defined()) outputs.mean = outputs.mean + bias();
    return outputs;
  }
};

std::vector<LayerToFactor> layers_of(const torch::nn::Module& module) {
  std::vector<LayerToFactor> layers;
  for (const auto& item : module.named_modules("", /*include_self=*/false)) {
    auto* linear = item.value()->as<torch::nn::LinearImpl>();
    auto* embedding = item.value()->as<torch::nn::EmbeddingImpl>();
    if (linear != nullptr || embedding != nullptr)
      layers.push_back({.name = item.key(), .linear = linear, .embedding = embedding});
  }
  return layers;
}

// Of `count` ids below `size`, at equal distances.
std::vector<uint64_t> spread_ids(uint64_t count, uint64_t size) {
  std::vector<uint64_t> ids;
  for (uint64_t i = 0; i < count; ++i) ids.push_back(i * size / count);
  return ids;
}

// Runs the network on these samples.
void calibrate(const Task& task, const Dataset& data, std::span<const uint64_t> ids, uint64_t batch,
               std::vector<LayerToFactor>& layers) {
  std::vector<torch::Tensor> weights;
  for (const LayerToFactor& layer : layers) weights.push_back(layer.weight());
  LayerInputs inputs(weights);
  task.module->eval();
  for (size_t first = 0; first < ids.size(); first += batch) {
    const size_t count = std::min<size_t>(batch, ids.size() - first);
    task.forward(data.fetch(ids.subspan(first, count), {}).inputs);
    for (const LayerInput& one : inputs.take()) layers[one.layer].add(one.inputs);
  }
}

// The two ways, at one rank.
struct BothFactors {
  ThinFactors by_outputs, by_weights;
};

// By the names of layers.
using Factored = std::map<std::string, BothFactors>;

FactoredLayer factor(const LayerToFactor& layer, const FactorRequest& request, Factored& all) {
  const torch::Tensor weight = layer.weight(), bias = layer.bias();
  const int64_t rows = weight.size(0), columns = weight.size(1);
  const auto before = static_cast<uint64_t>(weight.numel() + (bias.defined() ? bias.numel() : 0));
  FactoredLayer report{.name = layer.name,
                       .embedding = layer.embedding != nullptr,
                       .rows = static_cast<uint64_t>(rows),
                       .columns = static_cast<uint64_t>(columns),
                       .parameters = before,
                       .factored = before};
  if (layer.moments.count() == 0) return report;
  try {
    const OutputSubspace outputs = layer.subspace();
    const auto wanted = static_cast<int64_t>(
        std::min<uint64_t>(request.rank, static_cast<uint64_t>(outputs.directions.size(1))));
    const int64_t asked = request.rank > 0 ? wanted : rank_for_share(outputs, request.keep);
    const int64_t length = report.embedding ? columns : rows;  // of an output
    const int64_t determined = determined_directions(outputs);
    report.directions = static_cast<uint64_t>(outputs.directions.size(1));
    report.determined = static_cast<uint64_t>(determined);
    // What is asked for decides whether a layer stays as it is: few samples do not make it one that
    // is factored.
    if (count_factored(rows, columns, asked, length) >= before || determined == 0) return report;
    const int64_t rank = std::min(asked, determined);
    report.rank = static_cast<uint64_t>(rank);
    report.share = share_of_variance(outputs, rank);
    BothFactors factors{.by_outputs = report.embedding ? factor_embedding(weight, outputs, rank)
                                                       : factor_linear(weight, bias, outputs, rank),
                        .by_weights = truncate(weight, bias, rank)};
    report.factored = factors.by_outputs.count();
    all.emplace(layer.name, std::move(factors));
    return report;
  } catch (const Error& error) {
    throw Error(error.code(), layer.name + ": " + error.what());
  }
}

// Puts products of factors in the place of weights while it lives.
class ShownFactors {
 public:
  ShownFactors(std::vector<LayerToFactor>& layers, const Factored& all,
               ThinFactors BothFactors::*which)
      : layers_(layers) {
    for (LayerToFactor& layer : layers_) {
      before_.emplace_back(layer.weight(), layer.bias());
      const auto found = all.find(layer.name);
      if (found == all.end()) continue;
      const ThinFactors& factors = found->second.*which;
      torch::Tensor product = factors.weight();
      if (layer.linear != nullptr)
        layer.linear->bias = factors.bias;
      else if (factors.bias.defined())
        product += factors.bias;
      layer.weight() = product;
    }
  }
  ~ShownFactors() {
    for (size_t i = 0; i < layers_.size(); ++i) {
      layers_[i].weight() = before_[i].first;
      if (layers_[i].linear != nullptr) layers_[i].linear->bias = before_[i].second;
    }
  }
  ShownFactors(const ShownFactors&) = delete;
  ShownFactors& operator=(const ShownFactors&) = delete;

 private:
  std::vector<LayerToFactor>& layers_;
  std::vector<std::pair<torch::Tensor, torch::Tensor>> before_;
};

void write_factored(const std::string& path, const torch::nn::Module& module, const Factored& all) {
  StateArrays arrays;
  const auto add = [&](const std::string& name, const torch::Tensor& values) {
    arrays.push_back(to_state({name, values}, OnResize::kCopy));
  };
  for (const auto& [name, both] : all) {
    add(name + ".weight.left", both.by_outputs.left);
    add(name + ".weight.right", both.by_outputs.right);
    add(name + ".bias", both.by_outputs.bias);
  }
  for (const NamedTensor& tensor : named_weights(module)) {
    const size_t dot = tensor.name.rfind('.');
    if (dot == std::string::npos || !all.contains(tensor.name.substr(0, dot)))
      add(tensor.name, tensor.tensor);
  }
  replace_durably(path, write_safetensors({.metadata = {{"format", "pt"}}, .arrays = arrays}));
}

}  // namespace

FactorReport factor_model(const FactorRequest& request) try {
  if (!(request.keep > 0 && request.keep <= 1))
    throw Error(ErrorCode::kBadOption, "keep is " + std::to_string(request.keep) +
                                           ", but must be a share above 0 and not above 1");
  if (!request.out.empty()) check_output(request.out, Writing::kReplaces);
  const torch::NoGradGuard no_grad;
  const fs::path run = without_slash(request.run);
  const fs::path newest = find_checkpoints(run).back();
  const Checkpoint checkpoint = load_model(newest);
  const Options recipe = recipe_of(checkpoint, newest);
  const DataSplits data = make_data_set(data_request(recipe, request.data));
  const Task task = with_defaults(with_tensor_autoencoders(
      recipe,
      with_autoencoders(recipe, make_model(model_options(recipe), data.shape), *data.train)));
  const SavedModel saved = read_saved_model(run);
  show_weights(saved.arrays, saved.from, recipe, *task.module);

  const uint64_t samples = data.train->size();
  const auto batch = static_cast<uint64_t>(recipe.integer("train.evaluate_batch"));
  FactorReport report{
      .data = recipe.text("data.name"),
      .model = recipe.text("model.name"),
      .step = checkpoint.step,
      .training_samples = samples,
      .calibration = request.calibration == 0 ? samples : std::min(request.calibration, samples),
      .test_samples = data.test->size()};
  std::vector<LayerToFactor> layers = layers_of(*task.module);
  calibrate(task, *data.train, spread_ids(report.calibration, samples), batch, layers);
  Factored all;
  for (const LayerToFactor& layer : layers) report.layers.push_back(factor(layer, request, all));

  for (const auto& parameter : task.module->parameters())
    report.parameters += static_cast<uint64_t>(parameter.numel());
  report.factored = report.parameters;
  for (const FactoredLayer& layer : report.layers)
    report.factored -= layer.parameters - layer.factored;
  const auto alone = std::move(make_local_groups(1)[0]);
  const auto score = [&] {
    const Score found = evaluate(*alone, task, *data.test, batch, {});
    return FactorScore{.loss = found.loss, .error = found.error};
  };
  report.trained = score();
  {
    const ShownFactors shown(layers, all, &BothFactors::by_outputs);
    report.by_outputs = score();
  }
  {
    const ShownFactors shown(layers, all, &BothFactors::by_weights);
    report.by_weights = score();
  }
  if (!request.out.empty()) write_factored(request.out, *task.module, all);
  return report;
} catch (const fs::filesystem_error& error) {
  throw Error(ErrorCode::kIo, error.what());
}

}  // namespace thinwire
