// Finds the checkpoints in a run's folder.
// SPDX-License-Identifier: Apache-2.0
#include "train/saved_run.h"

#include <torch/torch.h>

#include <algorithm>
#include <system_error>

#include "train/named_tensors.h"
#include "train/recipe_text.h"
#include "train/saved_names.h"

namespace thinwire {

namespace fs = std::filesystem;

fs::path without_slash(fs::path run) { return run.has_filename() ? run : run.parent_path(); }

std::vector<fs::path> find_checkpoints(const fs::path& run) {
  if (fs::exists(run / kManifestName)) return {run};
  const auto refuse = [&](const std::string& why) {
    return Error(ErrorCode::kIo, run.string() + ": " + why);
  };
  if (!fs::exists(run))
    throw refuse("is not there; name a folder that thinwire train wrote with --out");
  const auto all = list_checkpoints(run);
  if (!all.empty()) return all;
  std::vector<std::string> inside;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(run, ignored))
    if (!list_checkpoints(entry.path()).empty()) inside.push_back(entry.path().string());
  std::sort(inside.begin(), inside.end());
  if (inside.empty()) throw refuse("holds no checkpoint; thinwire train with --out writes them");
  throw refuse("holds several runs; name one of them: " + joined_names(inside));
}

Options recipe_of(const Checkpoint& checkpoint, const fs::path& folder) {
  return read_agreement((folder / kManifestName).string(), checkpoint.recipe).value();
}

void show_weights(const StateArrays& arrays, const std::string& from, const Options& recipe,
                  const torch::nn::Module& module) {
  const torch::NoGradGuard no_grad;
  for (const NamedTensor& weight : named_weights(module))
    if (const Status status = from_state(arrays, weight); !status)
      throw Error(status.code(), from + ": its weights are not those of model " +
                                     recipe.text("model.name") + ": " + status.message());
}

}  // namespace thinwire
