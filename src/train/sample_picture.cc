// Scales values to bytes.
// SPDX-License-Identifier: Apache-2.0
#include "train/sample_picture.h"

#include <torch/torch.h>

#include <algorithm>
#include <vector>

namespace thinwire {
namespace {

// Values in [0, 1], height x width x channels.
SamplePicture to_bytes(const torch::Tensor& values) {
  const torch::Tensor bytes = (values * 255).round().clamp(0, 255).to(torch::kUInt8).contiguous();
  const uint8_t* first = bytes.const_data_ptr<uint8_t>();
  return {.width = static_cast<uint32_t>(bytes.size(1)),
          .height = static_cast<uint32_t>(bytes.size(0)),
          .channels = static_cast<uint32_t>(bytes.size(2)),
          .values = {first, first + bytes.numel()}};
}

}  // namespace

SamplePicture picture_of(const torch::Tensor& input, const PixelScale& pixels) {
  if (input.dim() == 3 && (input.size(0) == 1 || input.size(0) == 3) &&
      pixels.mean.size() == static_cast<size_t>(input.size(0))) {
    const auto of_channels = [](const std::vector<float>& values) {
      return torch::tensor(values).view({-1, 1, 1});
    };
    return to_bytes(
        (input * of_channels(pixels.deviation) + of_channels(pixels.mean)).permute({1, 2, 0}));
  }
  if (input.dim() == 2) {
    const torch::Tensor rows = input.t().flip(0).unsqueeze(2);
    const float least = rows.min().item<float>(), most = rows.max().item<float>();
    return to_bytes((rows - least) / std::max(most - least, 1e-20f));
  }
  return {};
}

}  // namespace thinwire
