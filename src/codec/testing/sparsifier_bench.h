// For benchmarks: a step of a codec with residual feedback and the pass that forms its values.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <span>
#include <string>
#include <vector>

#include "bench/side_by_side.h"
#include "core/aligned.h"
#include "core/random.h"
#include "kernel/vector_moments.h"
#include "thinwire/codec.h"

namespace thinwire::bench {

// `count` values of a Laplace law; good until a larger number is asked for.
inline std::span<const float> laplace_gradient(size_t count) {
  static AlignedVector<float> values;
  if (values.size() < count) {
    values = AlignedVector<float>(count);
    for (size_t i = 0; i < count; ++i) {
      const float u = random_unit({.seed = 1}, i) - 0.5f;
      values[i] = std::copysign(-std::log1p(-1.9999998f * std::abs(u)), u);
    }
  }
  return std::span(values).first(count);
}

// values = gradient + residual with their moments, then encode, which leaves the remainder in their
// place. Unless `committed`, methods that act once in some steps do so in every one.
// Counter besides those of side_by_side: over_target, kept over asked for.
inline void feedback_step(benchmark::State& state, const std::string& spec,
                          const Budget& budget = nullptr, size_t count = kLarge,
                          bool committed = false) {
  const NamedCodec named = make_codec(spec).value();
  const StreamSpec stream = single_tensor({.name = "w", .shape = {count}});
  const auto encoder = named.codec->make_encoder(stream);
  const auto gradient = laplace_gradient(count);
  const AlignedVector<float> residual(count);
  AlignedVector<float> values(count);
  std::vector<std::byte> out(named.codec->max_encoded_size(stream));
  Encoded encoded;
  const auto step = [&] {
    const Moments moments = kernel::add_with_moments(gradient, residual, values);
    encoded = encoder->encode({.values = values, .fresh = {}, .moments = moments}, {}, out, values);
    if (committed) encoder->commit();
  };
  step();  // grows the buffers
  side_by_side(state, count, nullptr, step, budget);
  if (encoded.target > 0)
    state.counters["over_target"] =
        static_cast<double>(encoded.kept) / static_cast<double>(encoded.target);
}

}  // namespace thinwire::bench
