// Finds the file with the start weights, and copies them by name.
// SPDX-License-Identifier: Apache-2.0
#include "train/start_weights.h"

#include <torch/torch.h>

#include <filesystem>

#include "train/checkpoint.h"
#include "train/durable_file.h"
#include "train/named_tensors.h"
#include "train/safetensors.h"

namespace thinwire {
namespace {

namespace fs = std::filesystem;

fs::path find_file(const fs::path& from) {
  if (!fs::is_directory(from)) return from;
  if (fs::exists(from / "model.safetensors")) return from / "model.safetensors";
  const auto checkpoints = list_checkpoints(from);
  if (checkpoints.empty())
    throw Error(ErrorCode::kIo,
                "model.weights: " + from.string() + " has no model.safetensors and no checkpoint");
  return checkpoints.back() / "model.safetensors";
}

}  // namespace

void load_weights(const torch::nn::Module& module, const std::string& from) {
  const torch::NoGradGuard no_grad;
  const std::string path = find_file(from).string();
  const std::vector<std::byte> bytes = read_file(path);
  auto file = read_safetensors(path, bytes);
  if (!file) throw Error(file.status().code(), "model.weights: " + file.status().message());
  for (const NamedTensor& weight : named_weights(module))
    if (const Status status = from_state(file.value().arrays, weight); !status)
      throw Error(status.code(), "model.weights: " + path + ": " + status.message());
}

}  // namespace thinwire
