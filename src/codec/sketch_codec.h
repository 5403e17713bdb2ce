// Codecs whose payload is a sketch: few sums of the values with random signs, of which all values
// are estimated.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "codec/random_positions.h"
#include "core/aligned.h"
#include "thinwire/codec.h"

namespace thinwire {

// Payload:
//
//   u64 key
//       sums[kept]   codec/kept_values.h
//
// The key says all signs and places (codec_random.h). With the option `shared` it is the same on
// all ranks, so that the sum of sketches is the sketch of the sum. There is then one round, of
// method shared-index: the mean over ranks of the sums, f32, and nothing else travels.
//
// Sums are at most kMostSent in magnitude, so that neither an estimate nor what is left overflows;
// decoders refuse magnitudes above kMostRead, which no format's rounding reaches. Larger vectors
// are multiplied by a power of two while sums are formed.
inline constexpr float kMostSent = 0x1p86f, kMostRead = 0x1p87f;

// What one thread needs to form a sketch or to estimate from one. Its arrays grow to what was
// needed once.
struct SketchScratch {
  RandomPositions positions;
  std::vector<uint32_t> signs;
  std::array<AlignedVector<float>, 5> values;
  std::vector<float> sums;
};

// Signs of `count` values from `begin` on, a bit each, of sequence `row` of a key: bit i % 32 of
// word i / 32. They are good until `scratch` is used again. REQUIRES: begin is a multiple of 128.
std::span<const uint32_t> draw_signs(uint64_t key, uint32_t row, size_t begin, size_t count,
                                     SketchScratch& scratch);

// A sketch of vectors of one length. It is const and safe to call from any thread, each with
// scratch of its own.
class Sketch {
 public:
  virtual ~Sketch() = default;

  // Number of sums, at most the number of values.
  virtual size_t kept() const noexcept = 0;

  // The sums, which bounded_sum has bounded; `largest` is the largest magnitude of the values.
  virtual void form(uint64_t key, std::span<const float> values, float largest,
                    std::span<float> sums, SketchScratch& scratch) const = 0;

  // out += weight * estimate. A product and a sum for each value, each rounded.
  virtual void add_estimate(uint64_t key, std::span<const float> sums, float weight,
                            std::span<float> out, SketchScratch& scratch) const = 0;

  // Whether the estimate is a linear map of the sums. If it is not, add_linear adds one that is
  // near it. Values minus it are no longer than the values, but for rare draws of streams of few
  // values.
  virtual bool linear() const noexcept { return true; }
  virtual void add_linear(uint64_t key, std::span<const float> sums, float weight,
                          std::span<float> out, SketchScratch& scratch) const {
    add_estimate(key, sums, weight, out, scratch);
  }
};

// The factor of values up to `largest` with which 2^32 of them can be added, and times `scale` a
// sum that was formed with this factor, without it and bounded.
float sum_factor(float largest) noexcept;
float bounded_sum(float sum, float scale, float factor) noexcept;

// The options `density`, `shared`, `scaled` and `values`; those of one sketch come between the
// first and the others.
std::vector<OptionInfo> sketch_options(std::vector<OptionInfo> own);

// Makes the sketch of `count` values.
using MakeSketch = std::function<std::unique_ptr<const Sketch>(size_t count)>;

// `info` is the registry's; the options are sketch_options, and `make` has those of the sketch.
std::unique_ptr<Codec> make_sketch_codec(const CodecInfo& info, const Options& options,
                                         MakeSketch make);

}  // namespace thinwire
