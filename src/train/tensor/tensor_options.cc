// Reads the section `tensor` of a recipe, and finds its mistakes.
// SPDX-License-Identifier: Apache-2.0
#include "train/tensor/tensor_options.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "exchange/levels/holders.h"
#include "thinwire/codec.h"
#include "thinwire/exchange.h"
#include "train/models/models.h"
#include "train/pipeline/autoencoder.h"
#include "train/recipe_parts.h"

namespace thinwire {
namespace {

using Faults = std::vector<RecipeFault>;

RecipeFault fault(std::string key, std::string message) {
  return {std::move(key), Status::fail(ErrorCode::kBadOption, std::move(message))};
}

// In any part of the run.
bool is_sparse(const std::string& codec) {
  auto codecs = scheduled_codecs(codec);
  return codecs && std::any_of(codecs.value().begin(), codecs.value().end(),
                               [](const NamedCodec& one) { return one.codec->info().sparse; });
}

// Of the codec and the memory of one direction.
void find_direction_faults(const Options& recipe, const TensorParallelOptions& options,
                           bool backward, Faults& faults) {
  const std::string key = backward ? "tensor.backward" : "tensor.forward";
  BoundarySpec spec = sum_options(options, true, backward);
  spec.sample_shape = {64};
  if (const Status status = make_boundary_sender(spec).status(); !status) {
    const bool codec = !scheduled_codecs(spec.codec);  // the codec alone tells whose fault it is
    faults.push_back({codec || spec.memory == "none" ? key : key + "_memory", status});
    return;
  }
  const BoundaryMemory& memory = *find_boundary_memory(spec.memory).value().entry;
  if (memory.by_id)
    faults.push_back(fault(key + "_memory",
                           std::string(memory.name) +
                               " remembers activations between stages (pipeline.stages); of sums "
                               "over ranks choose none, ef, efmixed or ef21"));
  else if (memory.whole_batches && !recipe.flag("train.drop_last"))
    faults.push_back(fault(key + "_memory", "takes whole batches only: set train.drop_last"));
  else if (memory.whole_batches &&
           recipe.integer("train.batch") % recipe.integer("train.micro_batches") != 0)
    faults.push_back(fault(key + "_memory",
                           "takes whole batches only: train.batch must be a multiple of "
                           "train.micro_batches"));
}

// Of what ranks are to share. Networks of a caller's own, which no recipe describes, are checked by
// plan_tensors.
void find_network_faults(const Options& recipe, const TensorParallelOptions& options,
                         Faults& faults) {
  const std::string& name = recipe.text("model.name");
  std::optional<SharedLayers> shared;
  try {
    shared = shared_layers(model_options(recipe));
  } catch (const Error&) {
    return;  // find_model_faults says so
  }
  if (!shared) {
    faults.push_back(fault("tensor.ranks", "network " + name +
                                               " has no layers that ranks can share; choose "
                                               "model.name = gpt-mini, or tensor.ranks = 0"));
    return;
  }
  if (shared->heads % static_cast<int64_t>(options.ranks) != 0)
    faults.push_back(
        fault("tensor.ranks", std::to_string(options.ranks) + " ranks cannot share the " +
                                  std::to_string(shared->heads) +
                                  " heads of a block, model.hidden / 32; choose one of " +
                                  divisors_text(static_cast<int>(shared->heads))));
  if (options.layers > static_cast<size_t>(shared->layers))
    faults.push_back(fault("tensor.layers", std::to_string(options.layers) + " layers, of " +
                                                std::to_string(shared->layers) +
                                                " that ranks share (model.layers); choose 1 to " +
                                                std::to_string(shared->layers) + ", or 0 for all"));
  constexpr uint64_t kMost = uint64_t{1} << 31;
  const Status width =
      code_width(options.autoencoder, static_cast<uint64_t>(shared->features)).status();
  // What is no width at all is a fault found before.
  if (!width && code_width(options.autoencoder, kMost))
    faults.push_back({"tensor.autoencoder", width});
}

}  // namespace

TensorParallelOptions tensor_options(const Options& recipe) {
  return {.ranks = static_cast<size_t>(recipe.integer("tensor.ranks")),
          .layers = static_cast<size_t>(recipe.integer("tensor.layers")),
          .forward = recipe.text("tensor.forward"),
          .forward_memory = recipe.text("tensor.forward_memory"),
          .backward = recipe.text("tensor.backward"),
          .backward_memory = recipe.text("tensor.backward_memory"),
          .autoencoder = recipe.text("tensor.autoencoder")};
}

BoundarySpec sum_options(const TensorParallelOptions& options, bool compressed, bool backward) {
  BoundarySpec spec;
  if (!compressed) return spec;
  spec.codec = backward ? options.backward : options.forward;
  spec.memory = backward ? options.backward_memory : options.forward_memory;
  spec.per_sample = is_sparse(spec.codec);
  return spec;
}

std::vector<RecipeFault> find_tensor_faults(const Options& recipe) {
  const TensorParallelOptions options = tensor_options(recipe);
  Faults faults;
  constexpr uint64_t kMost = uint64_t{1} << 31;
  if (auto width = code_width(options.autoencoder, kMost); !width)
    faults.push_back({"tensor.autoencoder", width.status()});
  if (options.ranks == 0) {
    if (faults.empty() && options.autoencoder != "none")
      faults.push_back(fault("tensor.autoencoder",
                             "there is no sum over ranks to encode: set tensor.ranks to 2 or more, "
                             "or this to none"));
    return faults;
  }
  const auto clash = [&](const std::string& why) { faults.push_back(fault("tensor.ranks", why)); };
  if (recipe.integer("pipeline.stages") > 0)
    clash(
        "the network is split within layers here, and between them by pipeline.stages; set one of "
        "the two");
  else if (!recipe.text("sync.method").empty())
    clash("workers that step by themselves (sync.method) share no layers");
  else if (recipe.text("optimizer.name") == "novograd")
    clash(
        "novograd scales by the norm of each tensor, of which a rank has a part; use sgd, signsgd "
        "or adam");
  else
    find_network_faults(recipe, options, faults);
  for (const bool backward : {false, true})
    find_direction_faults(recipe, options, backward, faults);
  return faults;
}

}  // namespace thinwire
