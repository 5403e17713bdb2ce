// Puts encoders and decoders into split layers, and draws their first weights.
// SPDX-License-Identifier: Apache-2.0
#include "train/tensor/tensor_autoencoders.h"

#include <torch/torch.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "core/random.h"
#include "train/pipeline/autoencoder.h"
#include "train/tensor/split_layer.h"
#include "train/tensor/tensor_options.h"

namespace thinwire {

Task with_tensor_autoencoders(const Options& recipe, Task task) {
  const TensorParallelOptions options = tensor_options(recipe);
  if (options.ranks == 0 || options.autoencoder == "none") return task;
  std::vector<SplitLayer*> split;
  for (const Layer& layer : task.layers)
    if (SplitLayer* one = split_layer_of(layer)) split.push_back(one);
  const size_t compressed =
      options.layers == 0 ? split.size() : std::min(options.layers, split.size());
  for (size_t nth = split.size() - compressed; nth < split.size(); ++nth) {
    if (!split[nth]->autoencoders().empty()) continue;  // of a run before
    const auto features = static_cast<uint64_t>(split[nth]->features());
    Result<uint64_t> code = code_width(options.autoencoder, features);
    if (!code) throw Error(ErrorCode::kBadOption, "tensor.autoencoder: " + code.status().message());
    split[nth]->add_autoencoders(static_cast<int64_t>(code.value()));
    const torch::NoGradGuard no_grad;
    uint32_t pair = 0;
    for (auto& [encoder, decoder] : split[nth]->autoencoders()) {
      // Step 1 of kInit is that of pipeline.autoencoder.
      const RandomKey key{.seed = static_cast<uint64_t>(recipe.integer("train.seed")),
                          .use = RandomUse::kInit,
                          .step = 2,
                          .stream = static_cast<uint32_t>(nth << 8 | pair++)};
      encoder->weight.copy_(
          orthonormal_rows(encoder->weight.size(0), encoder->weight.size(1), key));
      decoder->weight.copy_(encoder->weight.t());
    }
  }
  return task;
}

}  // namespace thinwire
