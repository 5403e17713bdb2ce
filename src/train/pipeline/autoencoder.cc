// Puts encoders and decoders into the layers beside the cuts, and draws their first weights.
//
// E begins with orthonormal columns, and D as the transpose of E. Then x E D is the projection of x
// on the span of these columns: of all that can be made of the code it is the closest to x, nothing
// is longer behind the pair than in front of it, and the gradient passes through the same
// projection. With k = d the pair changes nothing.
// SPDX-License-Identifier: Apache-2.0
#include "train/pipeline/autoencoder.h"

#include <torch/torch.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <memory>
#include <string>
#include <utility>

#include "core/random.h"
#include "train/pipeline/stage_plan.h"
#include "train/sequence.h"

namespace thinwire {
namespace {

namespace nn = torch::nn;

constexpr const char* kEncoder = "encoder";
constexpr const char* kDecoder = "decoder";
constexpr const char* kKey = "pipeline.autoencoder: ";

Status bad(const std::string& why) { return Status::fail(ErrorCode::kBadOption, why); }

[[noreturn]] void refuse(const std::string& why) { throw Error(ErrorCode::kBadOption, kKey + why); }

bool has_autoencoders(const PipelineOptions& options) {
  return std::any_of(options.autoencoder.begin(), options.autoencoder.end(),
                     [](const std::string& text) { return text != "none"; });
}

// Which of a sample's dimensions has its features: the channels of images, as libtorch lays them
// out, else the last.
size_t feature_axis(size_t dimensions) { return dimensions >= 3 ? 0 : dimensions - 1; }

// `matrix` on the features of samples.
torch::Tensor on_features(const nn::Linear& matrix, const torch::Tensor& x) {
  const auto axis = static_cast<int64_t>(feature_axis(static_cast<size_t>(x.dim()) - 1)) + 1;
  return torch::linear(x.movedim(axis, -1), matrix->weight).movedim(-1, axis);
}

// A layer without weights gets a module for these.
nn::Module& module_of(Task& task, Layer& layer) {
  if (!layer.module) {
    const auto children = task.module->named_children();
    const auto* known = children.find(layer.name);  // of a run before
    layer.module = known != nullptr
                       ? *known
                       : task.module->register_module(layer.name, std::make_shared<nn::Module>());
  }
  return *layer.module;
}

// From `from` features to `to`, and whether it is new.
std::pair<nn::Linear, bool> matrix_in(Task& task, Layer& layer, const char* name, uint64_t from,
                                      uint64_t to) {
  nn::Module& owner = module_of(task, layer);
  const auto in = static_cast<int64_t>(from), out = static_cast<int64_t>(to);
  const auto children = owner.named_children();
  if (const auto* known = children.find(name)) {
    const auto linear = std::dynamic_pointer_cast<nn::LinearImpl>(*known);
    if (!linear || linear->options.bias() || linear->options.in_features() != in ||
        linear->options.out_features() != out)
      refuse("layer '" + layer.name + "' has another module '" + name + "' already");
    return {nn::Linear(linear), false};
  }
  return {owner.register_module(name, nn::Linear(nn::LinearOptions(in, out).bias(false))), true};
}

// The pair around one cut, between the layers `last` and `next`.
void add_pair(Task& task, Layer& last, Layer& next, uint64_t features, uint64_t code,
              const RandomKey& key) {
  const auto [encoder, fresh] = matrix_in(task, last, kEncoder, features, code);
  const nn::Linear decoder = matrix_in(task, next, kDecoder, code, features).first;
  if (fresh) {
    const torch::NoGradGuard no_grad;
    encoder->weight.copy_(
        orthonormal_rows(static_cast<int64_t>(code), static_cast<int64_t>(features), key));
    decoder->weight.copy_(encoder->weight.t());
  }
  last.forward = [matrix = encoder, inner = last.forward](const torch::Tensor& x) {
    return on_features(matrix, inner(x));
  };
  next.forward = [matrix = decoder, inner = next.forward](const torch::Tensor& x) {
    return inner(on_features(matrix, x));
  };
}

}  // namespace

// Normal deviates through Gram-Schmidt. Twice is enough [Giraud et al., 2005].
torch::Tensor orthonormal_rows(int64_t count, int64_t length, const RandomKey& key) {
  std::vector<std::vector<double>> rows;
  for (int64_t i = 0; i < count; ++i) {
    std::vector<double> row(static_cast<size_t>(length));
    for (size_t j = 0; j < row.size(); ++j)
      row[j] = random_normal(key, static_cast<uint64_t>(i) * row.size() + j);
    const auto dot = [&](const std::vector<double>& other) {
      double sum = 0;
      for (size_t j = 0; j < row.size(); ++j) sum += row[j] * other[j];
      return sum;
    };
    for (int turn = 0; turn < 2; ++turn)
      for (const std::vector<double>& other : rows) {
        const double share = dot(other);
        for (size_t j = 0; j < row.size(); ++j) row[j] -= share * other[j];
      }
    const double norm = std::sqrt(dot(row));
    for (double& value : row) value /= norm;
    rows.push_back(std::move(row));
  }
  torch::Tensor matrix = torch::empty({count, length});
  auto* values = matrix.mutable_data_ptr<float>();
  for (const std::vector<double>& row : rows)
    for (const double value : row) *values++ = static_cast<float>(value);
  return matrix;
}

Result<uint64_t> code_width(std::string_view text, uint64_t features) {
  if (text == "none") return uint64_t{0};
  const bool is_ratio = text.ends_with('x');
  const std::string_view digits = text.substr(0, text.size() - (is_ratio ? 1 : 0));
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (error != std::errc() || end != digits.data() + digits.size() || number == 0)
    return bad("'" + std::string(text) +
               "' must be none, the values of the code (32, at least 1), or how many times fewer "
               "they are than features (4x, at least 1x)");
  if (number > features)
    return bad("'" + std::string(text) + "' does not go with " + std::to_string(features) +
               " features: choose from 1 to " + std::to_string(features) + ", or from 1x to " +
               std::to_string(features) + "x");
  return is_ratio ? (features + number - 1) / number : number;
}

Status check_autoencoders(const PipelineOptions& options) {
  constexpr uint64_t kMost = uint64_t{1} << 31;
  for (const std::string& text : options.autoencoder)
    if (auto width = code_width(text, kMost); !width) return width.status();
  if (!has_autoencoders(options)) return Status::ok();
  if (options.stages < 2)
    return bad("there is no cut to encode at: set pipeline.stages to 2 or more, or this to none");
  if (options.cut == "parameters" || options.cut == "time")
    return bad("its matrices belong to the layers beside the cuts, which pipeline.cut = \"" +
               options.cut +
               "\" finds only later: name the last layer of each stage but the last there "
               "(\"block1, block2\"), or set this to none");
  return Status::ok();
}

Task with_autoencoders(const Options& recipe, Task task, const Dataset& data) {
  const PipelineOptions options = pipeline_options(recipe);
  if (Status status = check_autoencoders(options); !status) refuse(status.message());
  if (!has_autoencoders(options)) return task;
  const StageCut cut = cut_stages(options, task, data, 2);
  const auto seed = static_cast<uint64_t>(recipe.integer("train.seed"));
  for (size_t i = 0; i + 1 < options.stages; ++i) {
    const std::string& text = of_cut(options.autoencoder, i);
    if (text == "none") continue;
    Layer &last = task.layers[cut.starts[i + 1] - 1], &next = task.layers[cut.starts[i + 1]];
    const auto& shape = cut.crossing[i];
    const uint64_t features = shape[feature_axis(shape.size())];
    if (features < 2) refuse("layer '" + last.name + "' gives one feature, which is no vector");
    Result<uint64_t> code = code_width(text, features);
    if (!code) refuse("behind layer '" + last.name + "' " + code.status().message());
    // Steps of kInit other than 0 are not the network's own.
    add_pair(
        task, last, next, features, code.value(),
        {.seed = seed, .use = RandomUse::kInit, .step = 1, .stream = static_cast<uint32_t>(i)});
  }
  task.forward = [all = task.layers](const torch::Tensor& inputs) {
    torch::Tensor x = inputs;
    for (size_t i = 0; i < all.size(); ++i) x = run_layer(all[i], i, x);
    return x;
  };
  return task;
}

std::vector<uint64_t> shape_before_encoder(const PipelineOptions& options, size_t cut,
                                           const Layer& last, std::vector<uint64_t> crossing) {
  if (of_cut(options.autoencoder, cut) == "none") return crossing;
  const auto children = last.module->named_children();
  const auto& encoder = *children[kEncoder]->as<nn::LinearImpl>();
  crossing[feature_axis(crossing.size())] = static_cast<uint64_t>(encoder.options.in_features());
  return crossing;
}

}  // namespace thinwire
