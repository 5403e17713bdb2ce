// srht: random coefficients of a Walsh-Hadamard transform of the values with random signs, the
// subsampled randomised Hadamard transform [Tropp, Adv. Adapt. Data Anal. 2011, arXiv:1011.1595].
//
//   the stream is cut into pieces of `chunk` values; what is left is cut into powers of two, the
//   largest first
//   c = H S x        S: a random sign for each value;   H: the orthonormal transform of each piece
//   k = density x count random coefficients are sent;
//   estimate = S H c, with zeros in place of the others
//
// Signs and positions follow from a key that ranks share, so coefficients travel without positions,
// and are added as they are (sketch_codec.h). The transform spreads every value over its piece: a
// part of each value arrives in each step, where randomk sends it whole or not at all.
//
// The estimate is an orthogonal projection: |x - estimate|^2 is never more than |x|^2, and it is 1
// - k / count of it on average over draws, for every x. Use it with a memory. If `scaled`,
// coefficients are sent times count / k. The estimate is then unbiased, of variance count / k - 1
// times |x|^2, which is spread over all values of a piece alike: use it without a memory. The
// program of [Bian et al., MLSys 2024, arXiv:2301.02654] has this form for activations, with rows
// drawn with replacement and one draw for all samples.
//
// Powers of two keep the coefficients as many as the values. A padded piece would have more of
// them, for nothing.
//
// A transform of 4096 values is 12 stages of additions in the nearest cache. Values are read once
// for their coefficients, and once more for a remainder.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <memory>
#include <string>

#include "codec/builtin.h"
#include "codec/sketch_codec.h"
#include "codec/sparse_codec.h"
#include "kernel/memory_passes.h"
#include "kernel/walsh.h"

namespace thinwire {
namespace {

constexpr CodecInfo kInfo{.name = "srht",
                          .id = 34,
                          .summary = "random coefficients of Hadamard transforms",
                          .paper = "Tropp, AADA 2011, arXiv:1011.1595",
                          .fixed_size = true,
                          .selective = true,
                          .agreed = Agreed::kPositions};

class Srht final : public Sketch {
 public:
  Srht(size_t count, size_t chunk, double density, bool scaled)
      : count_(count),
        chunk_(chunk),
        kept_(kept_target(density, count)),
        scale_(scaled && kept_ > 0
                   ? static_cast<float>(static_cast<double>(count) / static_cast<double>(kept_))
                   : 1) {}

  size_t kept() const noexcept override { return kept_; }

  void form(uint64_t key, std::span<const float> values, float largest, std::span<float> sums,
            SketchScratch& scratch) const override {
    const float factor = sum_factor(largest);
    each_section(key, scratch, [&](const Section& section, std::span<float> work) {
      const auto own = values.subspan(section.begin, section.size);
      kernel::flip_signs(draw_signs(key, 0, section.begin, section.size, scratch), own, work);
      if (factor != 1)
        for (float& value : work) value *= factor;
      section.each_piece([&](size_t at, size_t size, size_t from, size_t until) {
        if (from == until) return;
        const auto piece = work.subspan(at, size);
        kernel::walsh_hadamard(piece);
        for (size_t i = from; i < until; ++i)
          sums[i] =
              bounded_sum(work[section.positions[i] - section.begin] * norm(size), scale_, factor);
      });
    });
  }

  void add_estimate(uint64_t key, std::span<const float> sums, float weight, std::span<float> out,
                    SketchScratch& scratch) const override {
    each_section(key, scratch, [&](const Section& section, std::span<float> work) {
      std::fill(work.begin(), work.end(), 0.0f);
      section.each_piece([&](size_t at, size_t size, size_t from, size_t until) {
        if (from == until) return;
        for (size_t i = from; i < until; ++i)
          work[section.positions[i] - section.begin] = sums[i] * norm(size);
        kernel::walsh_hadamard(work.subspan(at, size));
      });
      kernel::flip_signs(draw_signs(key, 0, section.begin, section.size, scratch), work, work);
      const auto to = out.subspan(section.begin, section.size);
      kernel::weighted_sum(1, to, weight, work, to);
    });
  }

 private:
  // `chunk` values, or those that are left; and the coefficients of it that are kept, [from,
  // until).
  struct Section {
    size_t begin, size;
    std::span<const uint32_t> positions;  // of all sections
    size_t from, until;

    // Calls each(at, size, from, until) for its powers of two: where one begins, and what of it is
    // kept.
    template <typename Each>
    void each_piece(const Each& each) const {
      size_t next = from;
      for (size_t at = 0, piece = 0; at < size; at += piece) {
        piece = std::bit_floor(size - at);
        const size_t first = next;
        while (next < until && positions[next] < begin + at + piece) ++next;
        each(at, piece, first, next);
      }
    }
  };

  // The float nearest to 1 / sqrt(size).
  static float norm(size_t size) {
    return static_cast<float>(1 / std::sqrt(static_cast<double>(size)));
  }

  // Calls each(section, work) for all sections of which something is kept; `work` is as long as the
  // section.
  template <typename Each>
  void each_section(uint64_t key, SketchScratch& scratch, const Each& each) const {
    const auto positions = scratch.positions.draw(key, count_, kept_);
    auto& work = scratch.values[0];
    work.resize(std::max(work.size(), std::min(chunk_, count_)));
    size_t next = 0;
    while (next < positions.size()) {
      const size_t begin = positions[next] / chunk_ * chunk_;
      const size_t size = std::min(chunk_, count_ - begin), from = next;
      while (next < positions.size() && positions[next] < begin + size) ++next;
      each(Section{begin, size, positions, from, next}, std::span(work).first(size));
    }
  }

  const size_t count_;
  const size_t chunk_;
  const size_t kept_;
  const float scale_;  // r
};

std::unique_ptr<Codec> make(const Options& options) {
  size_t chunk = 0;
  const std::string& text = options.text("chunk");
  std::from_chars(text.data(), text.data() + text.size(), chunk);
  return make_sketch_codec(
      kInfo, options,
      [chunk, density = options.number("density"), scaled = options.flag("scaled")](size_t count) {
        return std::make_unique<Srht>(count, chunk, density, scaled);
      });
}

}  // namespace

const CodecEntry& srht_entry() {
  static const CodecEntry entry{
      .info = kInfo,
      .options = sketch_options({{.name = "chunk",
                                  .type = OptionType::kChoice,
                                  .fallback = "4096",
                                  .choices = {"256", "4096", "65536"},
                                  .unit = "values",
                                  .help = "length of the pieces that are transformed"}}),
      .make = make};
  return entry;
}

}  // namespace thinwire
