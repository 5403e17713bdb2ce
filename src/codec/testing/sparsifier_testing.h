// For tests of sparsifiers: laws to draw gradients from, and a sender with feedback.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/random.h"
#include "thinwire/codec.h"

namespace thinwire::testing {

// A density of gradients, drawn value by value.
using Law = float (*)(uint64_t step, uint64_t i);

inline float laplace(uint64_t step, uint64_t i) {
  const float u = random_unit({.seed = 1, .step = step}, i) - 0.5f;
  return std::copysign(-std::log1p(-1.9999998f * std::abs(u)), u);
}

inline float normal(uint64_t step, uint64_t i) {
  return random_normal({.seed = 2, .step = step}, i);
}

// Three degrees of freedom: a heavy tail.
inline float student3(uint64_t step, uint64_t i) {
  float chi = 0;
  for (uint32_t k = 1; k < 4; ++k) {
    const float z = random_normal({.seed = 2, .step = step, .stream = k}, i);
    chi += z * z;
  }
  return normal(step, i) / std::sqrt(chi / 3);
}

inline std::vector<float> draw(Law law, uint64_t step, size_t count) {
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) values[i] = law(step, i);
  return values;
}

// One rank's sender with error feedback, and what it sent last.
class Sender {
 public:
  Sender(const std::string& spec, size_t count)
      : stream_(single_tensor({.name = "w", .shape = {count}})),
        codec_(std::move(make_codec(spec).value().codec)),
        encoder_(codec_->make_encoder(stream_)),
        decoder_(codec_->make_decoder(stream_)),
        residual(count),
        sent(count) {}

  Encoded step(std::span<const float> gradient, bool feedback = true) {
    before = residual;
    if (!feedback) std::fill(before.begin(), before.end(), 0.0f);
    for (size_t i = 0; i < before.size(); ++i) before[i] += gradient[i];
    residual = before;
    payload.resize(codec_->max_encoded_size(stream_));
    const Encoded encoded = encoder_->encode({.values = residual}, call, payload, residual);
    payload.resize(encoded.size);
    encoder_->commit();
    ++call.step;
    std::fill(sent.begin(), sent.end(), 0.0f);
    decoder_->decode_add(payload, 1, sent).or_throw();
    return encoded;
  }

  // Sent and left, taken apart by their magnitudes; infinity and 0 when there is none.
  float least_sent() const {
    float least = std::numeric_limits<float>::infinity();
    for (const float value : sent)
      if (value != 0) least = std::min(least, std::abs(value));
    return least;
  }
  float largest_left() const {
    float largest = 0;
    for (const float value : residual) largest = std::max(largest, std::abs(value));
    return largest;
  }

  Encoder& encoder() { return *encoder_; }
  const Decoder& decoder() const { return *decoder_; }
  size_t bound() const { return codec_->max_encoded_size(stream_); }

 private:
  StreamSpec stream_;
  std::unique_ptr<const Codec> codec_;
  std::unique_ptr<Encoder> encoder_;
  std::unique_ptr<const Decoder> decoder_;

 public:
  Call call;                    // of the next step
  std::vector<float> before;    // gradient + residual
  std::vector<float> residual;  // what is left
  std::vector<float> sent;      // decoded
  std::vector<std::byte> payload;
};

}  // namespace thinwire::testing
