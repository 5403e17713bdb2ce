// The table of networks, and the checks before one is built.
// SPDX-License-Identifier: Apache-2.0
#include "train/models/models.h"

#include <torch/torch.h>

#include <array>

#include "core/named_row.h"
#include "train/models/builtin_models.h"
#include "train/models/initialise.h"

namespace thinwire {
namespace {

struct ModelRow {
  std::string_view name;
  Task (*make)(const ModelOptions&, const SampleShape&);
  // Which settings it has.
  bool width = false, hidden = false, layers = false, embedding = false, activation = false,
       dropout = false;
  bool embeds_categories = false;  // has `embedding` where samples have categories
  SharedLayers (*shared)(const ModelOptions&) = nullptr;
};

constexpr auto kModels = std::to_array<ModelRow>({
    {.name = "mlp",
     .make = make_mlp,
     .hidden = true,
     .layers = true,
     .dropout = true,
     .embeds_categories = true},
    {.name = "cnn-mnist", .make = make_cnn_mnist, .hidden = true, .dropout = true},
    {.name = "cnn-cifar", .make = make_cnn_cifar, .hidden = true, .dropout = true},
    {.name = "cnn7", .make = make_cnn7, .width = true, .hidden = true, .dropout = true},
    {.name = "resnet8", .make = make_resnet8, .width = true},
    {.name = "resnet20", .make = make_resnet20, .width = true},
    {.name = "resnet18", .make = make_resnet18, .hidden = true},
    {.name = "char-lstm",
     .make = make_char_lstm,
     .hidden = true,
     .layers = true,
     .embedding = true,
     .dropout = true},
    {.name = "gpt-mini",
     .make = make_gpt_mini,
     .hidden = true,
     .layers = true,
     .dropout = true,
     .shared = shared_layers_of_gpt_mini},
    {.name = "dnn-speech",
     .make = make_dnn_speech,
     .hidden = true,
     .layers = true,
     .activation = true,
     .dropout = true},
});

const ModelRow& find_model(const std::string& name) {
  return *find_row(kModels, "model", name).value();
}

void check_options(const ModelRow& row, const ModelOptions& options, bool categories) {
  const auto refuse = [&](bool has, bool given, const char* setting, const char* where = "") {
    if (given && !has)
      throw Error(ErrorCode::kBadOption,
                  "model " + options.name + " has no setting '" + setting + "'" + where);
  };
  refuse(row.width, options.width != 0, "width");
  refuse(row.hidden, options.hidden != 0, "hidden");
  refuse(row.layers, options.layers != 0, "layers");
  refuse(row.embedding || (row.embeds_categories && categories), options.embedding != 0,
         "embedding", row.embeds_categories ? " for samples without categories" : "");
  refuse(row.activation, options.activation != "auto", "activation");
  refuse(row.dropout, options.dropout != 0, "dropout");
  if (options.width < 0 || options.hidden < 0 || options.layers < 0 || options.embedding < 0 ||
      options.dropout < 0 || options.dropout >= 1)
    throw Error(ErrorCode::kBadOption,
                "model " + options.name + ": sizes must not be negative, dropout in [0, 1)");
  if (row.shared != nullptr) row.shared(options);
}

}  // namespace

std::vector<std::string_view> model_names() {
  std::vector<std::string_view> names;
  for (const ModelRow& row : kModels) names.push_back(row.name);
  return names;
}

void check_model(const ModelOptions& options, bool categories) {
  check_options(find_model(options.name), options, categories);
}

std::optional<SharedLayers> shared_layers(const ModelOptions& options) {
  const ModelRow& row = find_model(options.name);
  if (row.shared == nullptr) return std::nullopt;
  return row.shared(options);
}

Task make_model(const ModelOptions& options, const SampleShape& shape) {
  const ModelRow& row = find_model(options.name);
  check_options(row, options, !shape.categories.empty());
  if (shape.classes < 2 || shape.input.empty() || shape.count() < 1)
    throw Error(ErrorCode::kMismatch, "model " + options.name + ": samples have no shape");
  Task task = row.make(options, shape);
  initialise(*task.module, options.seed);
  return task;
}

}  // namespace thinwire
