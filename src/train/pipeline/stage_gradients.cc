// Computes the norm of the gradients of all stages together.
// SPDX-License-Identifier: Apache-2.0
#include "train/pipeline/stage_gradients.h"

#include <cstring>
#include <span>
#include <vector>

namespace thinwire {

void clip_gradients(torch::nn::Module& stage, Group& pipeline, double limit) {
  const torch::NoGradGuard no_grad;
  std::vector<float> mine;
  for (const torch::Tensor& parameter : stage.parameters())
    if (parameter.grad().defined()) mine.push_back(parameter.grad().norm(2.0).item<float>());
  std::vector<torch::Tensor> norms;
  for (const auto& bytes : pipeline.all_gather_v(std::as_bytes(std::span(mine)))) {
    std::vector<float> of_stage(bytes.size() / sizeof(float));
    std::memcpy(of_stage.data(), bytes.data(), of_stage.size() * sizeof(float));
    for (const float norm : of_stage) norms.push_back(torch::tensor(norm));
  }
  if (norms.empty()) return;
  const torch::Tensor total = norms.size() == 1 ? norms[0] : torch::stack(norms).norm(2.0);
  const torch::Tensor share = torch::clamp(limit / (total + 1e-6), std::nullopt, 1.0);
  for (const torch::Tensor& parameter : stage.parameters())
    if (parameter.grad().defined()) parameter.mutable_grad().mul_(share);
}

}  // namespace thinwire
