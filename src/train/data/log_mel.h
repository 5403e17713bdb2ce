// Log-mel features of speech: the energy in bands of equal width on the mel scale, over time.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/torch.h>

namespace thinwire {

// Frames of 25 ms every 10 ms.
struct MelShape {
  int rate = 8000;    // samples per second
  int window = 200;   // samples of a frame
  int hop = 80;       // samples from one frame to the next
  int fft = 256;      // the frame, filled up with zeros
  int bands = 40;     // between `low` and half the rate
  double low = 20.0;  // Hz
};

// {bands, fft / 2 + 1}: how much of the energy at each frequency counts in each band. Triangles of
// height 1 that overlap by half, equally wide on the mel scale 2595 log10(1 + f / 700).
torch::Tensor mel_filters(const MelShape& shape);

// {frames, bands}: the logarithm of the energy in each band, of Hann-windowed frames. Samples that
// fill no whole frame at the end are left out; fewer than one frame are filled up with zeros.
torch::Tensor log_mel(const torch::Tensor& samples, const MelShape& shape);

// Mean 0 and deviation 1 in each band over the utterance (what a speaker's distance and a
// microphone do to it is gone), then exactly so many frames: cut equally at both ends, or followed
// by zeros.
torch::Tensor fit_utterance(const torch::Tensor& features, int64_t frames);

}  // namespace thinwire
