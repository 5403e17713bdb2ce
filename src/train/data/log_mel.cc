// Log-mel features by libtorch's Fourier transform.
// SPDX-License-Identifier: Apache-2.0
#include "train/data/log_mel.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace thinwire {
namespace {

// Energy below this counts as silence: of a full-scale tone, a frame has about 2,500.
constexpr double kFloor = 1e-6;

double to_mel(double hertz) { return 2595 * std::log10(1 + hertz / 700); }
double to_hertz(double mel) { return 700 * (std::pow(10, mel / 2595) - 1); }

}  // namespace

torch::Tensor mel_filters(const MelShape& shape) {
  // Band b rises from edge b to edge b + 1 and falls to edge b + 2.
  const double lowest = to_mel(shape.low);
  const double step = (to_mel(shape.rate / 2.0) - lowest) / (shape.bands + 1);
  std::vector<double> edge(static_cast<size_t>(shape.bands) + 2);
  for (size_t i = 0; i < edge.size(); ++i)
    edge[i] = to_hertz(lowest + step * static_cast<double>(i));

  torch::Tensor filters = torch::zeros({shape.bands, shape.fft / 2 + 1});
  auto weight = filters.accessor<float, 2>();
  for (int64_t b = 0; b < shape.bands; ++b) {
    const double* e = &edge[static_cast<size_t>(b)];
    for (int64_t k = 0; k <= shape.fft / 2; ++k) {
      const double hertz = static_cast<double>(k) * shape.rate / shape.fft;
      const double up = (hertz - e[0]) / (e[1] - e[0]);
      const double down = (e[2] - hertz) / (e[2] - e[1]);
      weight[b][k] = static_cast<float>(std::max(0.0, std::min(up, down)));
    }
  }
  return filters;
}

torch::Tensor log_mel(const torch::Tensor& samples, const MelShape& shape) {
  torch::Tensor sound = samples;
  if (sound.size(0) < shape.window)
    sound = torch::constant_pad_nd(sound, {0, shape.window - sound.size(0)});
  const torch::Tensor frames =
      sound.unfold(0, shape.window, shape.hop) * torch::hann_window(shape.window);
  const torch::Tensor energy = torch::fft::rfft(frames, shape.fft).abs().square();
  return torch::log(torch::matmul(energy, mel_filters(shape).t()) + kFloor);
}

torch::Tensor fit_utterance(const torch::Tensor& features, int64_t frames) {
  const torch::Tensor mean = features.mean(0, /*keepdim=*/true);
  const torch::Tensor deviation =
      (features - mean).square().mean(0, /*keepdim=*/true).sqrt().clamp_min(1e-3);
  const torch::Tensor normal = (features - mean) / deviation;
  const int64_t extra = normal.size(0) - frames;
  if (extra >= 0) return normal.slice(0, extra / 2, extra / 2 + frames).contiguous();
  return torch::constant_pad_nd(normal, {0, 0, 0, -extra});
}

}  // namespace thinwire
