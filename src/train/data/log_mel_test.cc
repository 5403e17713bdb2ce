// Log-mel features against their definition.
// SPDX-License-Identifier: Apache-2.0
#include "train/data/log_mel.h"

#include <gmock/gmock.h>
#include <torch/torch.h>

#include <cmath>
#include <complex>
#include <numbers>
#include <vector>

#include "train/data/data_test_files.h"

namespace thinwire {
namespace {

using testing::ElementsAre;

TEST(LogMel, FiltersOverlapByHalf) {
  const MelShape shape;
  const torch::Tensor filters = mel_filters(shape);
  EXPECT_THAT(filters.sizes().vec(), ElementsAre(40, 129));
  EXPECT_GT(filters.sum(1).min().item<float>(), 0.1);  // none falls between two frequencies
  EXPECT_LE(filters.max().item<float>(), 1);
  // Between the first and the last centre, 37 and 3,714 Hz, each frequency counts once in all.
  EXPECT_TRUE(torch::allclose(filters.sum(0).slice(0, 2, 118), torch::ones({116}), 1e-5, 1e-5));
}

TEST(LogMel, FindsATone) {
  const MelShape shape;
  const double lowest = 2595 * std::log10(1 + 20.0 / 700);
  const double highest = 2595 * std::log10(1 + 4000.0 / 700);
  for (int band = 0; band < 40; ++band) {
    const double centre =
        700 * (std::pow(10, (lowest + (highest - lowest) * (band + 1) / 41) / 2595) - 1);
    const std::vector<int16_t> sound = tone(centre, 2000);
    const torch::Tensor samples = torch::tensor(std::vector<float>(sound.begin(), sound.end()));
    const torch::Tensor features = log_mel(samples, shape);
    ASSERT_THAT(features.sizes().vec(),
                ElementsAre(23, 40));  // 1 + (2000 - 200) / 80, rounded down
    EXPECT_NEAR(features.mean(0).argmax().item<int64_t>(), band, band < 6 ? 1 : 0) << centre;
  }
}

// One frame by the definition: window, Fourier sum, weights, logarithm.
TEST(LogMel, IsWhatItSays) {
  const MelShape shape;
  const std::vector<int16_t> sound = tone(777, 300);
  const torch::Tensor samples =
      torch::tensor(std::vector<float>(sound.begin(), sound.end())) / 32768;
  const torch::Tensor filters = mel_filters(shape);
  std::vector<double> energy(129);
  for (size_t k = 0; k < energy.size(); ++k) {
    std::complex<double> sum = 0;
    for (int n = 0; n < 200; ++n) {
      const double turn = 2 * std::numbers::pi * n;
      sum += sound[static_cast<size_t>(80 + n)] / 32768.0 * 0.5 * (1 - std::cos(turn / 200)) *
             std::polar(1.0, -turn * static_cast<double>(k) / 256);
    }
    energy[k] = std::norm(sum);
  }
  const torch::Tensor features = log_mel(samples, shape);
  for (int64_t band = 0; band < 40; ++band) {
    double weighted = 1e-6;
    for (int64_t k = 0; k < 129; ++k)
      weighted += filters[band][k].item<float>() * energy[static_cast<size_t>(k)];
    EXPECT_NEAR(features[1][band].item<float>(), std::log(weighted), 2e-3) << band;
  }
}

TEST(LogMel, FitsUtterances) {
  const torch::Tensor features = torch::arange(30).reshape({10, 3}).to(torch::kFloat).square();
  const torch::Tensor longer = fit_utterance(features, 16);
  EXPECT_THAT(longer.sizes().vec(), ElementsAre(16, 3));
  const torch::Tensor own = longer.slice(0, 0, 10);
  EXPECT_TRUE(torch::allclose(own.mean(0), torch::zeros({3}), 0, 1e-5));
  EXPECT_TRUE(torch::allclose(own.square().mean(0), torch::ones({3}), 1e-4));
  EXPECT_EQ(longer.slice(0, 10).abs().max().item<float>(), 0);
  EXPECT_TRUE(torch::equal(fit_utterance(features, 7), own.slice(0, 1, 8)));
  EXPECT_TRUE(torch::equal(fit_utterance(torch::ones({4, 2}), 4), torch::zeros({4, 2})));
  EXPECT_EQ(log_mel(torch::zeros({10}), {}).size(0), 1);
}

}  // namespace
}  // namespace thinwire
