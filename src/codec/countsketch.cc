// countsketch: every value is added, with a random sign, to one of few buckets of each row
// [Charikar, Chen and Farach-Colton, ICALP 2002]; FetchSGD sends such sketches of gradients
// [Rothchild et al., ICML 2020, arXiv:2007.07682].
//
//   B[r][b] = f(v) sum of s[r][i] x[i] over the v values i that row r puts into bucket b
//   estimate of x[i] = median over rows of s[r][i] B[r][bucket of i]
//
// A row has m = k / rows buckets, k = density x count. Its hash takes the values in runs of m and
// turns each run by a random number of places: value j of run t is in bucket (j + c[r][t]) mod m.
// Two values of one run never share a bucket, and two of different runs do with a probability of 1
// / m, which is all that the analysis of the sketch asks of a hash. A bucket has count / m values,
// rounded down or up. And both directions add neighbouring values, where a hash of each value would
// jump through memory. Signs and turns follow from a key that ranks share, so buckets are added as
// they are (sketch_codec.h).
//
//   f(v) = 1 / (1 + w (v - 1)), w = 1, 0.449, 0.287 with 1, 3, 5 rows;   f(v) = 1 if `scaled`
//
// If `scaled`, the estimate is unbiased, because the other values of a bucket come with random
// signs. Its variance is w (v - 1) times the mean square: at a density of 0.1, with one row, the
// noise has nine times the energy of dense values. Use it without a memory, if at all.
//
// Otherwise f is what leaves least of values that are alike in size: w is the variance of the
// median of that many normal numbers. With one row f(v) is 1 / v, the estimate is an orthogonal
// projection, and it leaves 1 - m / count of |x|^2 on average over draws and never more than there
// was: as much as randomk and srht leave. (Independent hashes have buckets of different sizes. One
// factor for all, m / (m + count - 1), would leave 1 - m / (m + count - 1).) Use it with a memory.
//
// More rows pay where few values are large: most rows estimate a large value from a bucket without
// another large one. Of values alike in size, 3 rows take 0.071 of |x|^2 at a density of 0.1, 5
// rows 0.066, and one row 0.1. The server of FetchSGD keeps only the largest estimates; here all
// values are estimated.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <memory>
#include <utility>

#include "codec/builtin.h"
#include "codec/sketch_codec.h"
#include "codec/sparse_codec.h"
#include "core/random.h"
#include "kernel/memory_passes.h"
#include "kernel/walsh.h"

namespace thinwire {
namespace {

constexpr CodecInfo kInfo{.name = "countsketch",
                          .id = 35,
                          .summary = "sums of values with random signs in few buckets",
                          .paper = "Charikar, Chen and Farach-Colton, ICALP 2002",
                          .fixed_size = true,
                          .selective = true,
                          .agreed = Agreed::kPositions};

constexpr size_t kMostRows = 5;
constexpr size_t kSection = 4096;  // values that are treated at once, in the nearest cache

// The largest odd number of rows that is at most `wanted` and leaves each row a bucket.
size_t rows_for(size_t wanted, size_t kept) {
  const size_t most = std::min(wanted, kept);
  return most == 0 ? 0 : most - 1 + most % 2;
}

// Turns of the runs of a row, of which neighbouring ones are asked for.
class Turns {
 public:
  Turns(uint64_t key, uint32_t row, size_t buckets)
      : sequence_{.seed = key, .use = RandomUse::kCodec, .step = 2, .stream = row},
        buckets_(buckets) {}

  size_t operator()(size_t run) {
    if (run / 4 != block_) words_ = random_block(sequence_, block_ = run / 4);
    return static_cast<size_t>(uint64_t{words_[run % 4]} * buckets_ >> 32);
  }

 private:
  const RandomKey sequence_;
  const uint64_t buckets_;
  uint64_t block_ = ~uint64_t{0};
  std::array<uint32_t, 4> words_ = {};
};

float middle(float a, float b, float c) {
  return std::max(std::min(a, b), std::min(std::max(a, b), c));
}

// The smallest and the largest of four cannot be the median of five.
float middle(float a, float b, float c, float d, float e) {
  const float low = std::max(std::min(a, b), std::min(c, d));
  const float high = std::min(std::max(a, b), std::max(c, d));
  return middle(low, high, e);
}

class CountSketch final : public Sketch {
 public:
  CountSketch(size_t count, size_t rows, double density, bool scaled)
      : count_(count),
        rows_(rows_for(rows, kept_target(density, count))),
        buckets_(rows_ == 0 ? 0 : kept_target(density, count) / rows_),
        scaled_(scaled) {}

  size_t kept() const noexcept override { return rows_ * buckets_; }
  bool linear() const noexcept override { return rows_ <= 1; }

  void form(uint64_t key, std::span<const float> values, float largest, std::span<float> sums,
            SketchScratch& scratch) const override {
    const float factor = sum_factor(largest);
    std::fill(sums.begin(), sums.end(), 0.0f);
    for (uint32_t row = 0; row < rows_; ++row) {
      const auto own = sums.subspan(row * buckets_, buckets_);
      Turns turns(key, row, buckets_);
      for (size_t begin = 0; begin < count_; begin += kSection) {
        const size_t size = std::min(kSection, count_ - begin);
        const auto work = work_of(0, size, scratch);
        kernel::flip_signs(draw_signs(key, row, begin, size, scratch), values.subspan(begin, size),
                           work);
        if (factor != 1)
          for (float& value : work) value *= factor;
        each_stretch(turns, begin, size, [&](size_t at, size_t bucket, size_t length) {
          const auto to = own.subspan(bucket, length);
          kernel::weighted_sum(1, to, 1, work.subspan(at - begin, length), to);
        });
      }
      scale(turns, factor, own);
    }
  }

  void add_estimate(uint64_t key, std::span<const float> sums, float weight, std::span<float> out,
                    SketchScratch& scratch) const override {
    auto turns = turns_of(key);
    for (size_t begin = 0; begin < count_; begin += kSection) {
      const size_t size = std::min(kSection, count_ - begin);
      std::array<std::span<float>, kMostRows> all;
      for (uint32_t row = 0; row < rows_; ++row)
        all[row] = estimate_of(row, key, turns[row], sums, begin, size, scratch);
      const auto& [a, b, c, d, e] = all;
      if (rows_ == 3)
        for (size_t i = 0; i < size; ++i) a[i] = middle(a[i], b[i], c[i]);
      if (rows_ == 5)
        for (size_t i = 0; i < size; ++i) a[i] = middle(a[i], b[i], c[i], d[i], e[i]);
      const auto to = out.subspan(begin, size);
      kernel::weighted_sum(1, to, weight, a, to);
    }
  }

  // The mean over rows.
  void add_linear(uint64_t key, std::span<const float> sums, float weight, std::span<float> out,
                  SketchScratch& scratch) const override {
    auto turns = turns_of(key);
    const float share = weight / static_cast<float>(rows_);
    for (size_t begin = 0; begin < count_; begin += kSection) {
      const size_t size = std::min(kSection, count_ - begin);
      const auto to = out.subspan(begin, size);
      for (uint32_t row = 0; row < rows_; ++row)
        kernel::weighted_sum(1, to, share,
                             estimate_of(row, key, turns[row], sums, begin, size, scratch), to);
    }
  }

 private:
  std::array<Turns, kMostRows> turns_of(uint64_t key) const {
    const auto of = [&](uint32_t row) { return Turns(key, row, buckets_); };
    return {of(0), of(1), of(2), of(3), of(4)};
  }

  static std::span<float> work_of(size_t row, size_t size, SketchScratch& scratch) {
    auto& work = scratch.values[row];
    work.resize(std::max(work.size(), kSection));
    return std::span(work).first(size);
  }

  // What a row makes of values [begin, begin + size), in scratch.values[row].
  std::span<float> estimate_of(uint32_t row, uint64_t key, Turns& turns,
                               std::span<const float> sums, size_t begin, size_t size,
                               SketchScratch& scratch) const {
    const auto own = sums.subspan(row * buckets_, buckets_);
    const auto work = work_of(row, size, scratch);
    each_stretch(turns, begin, size, [&](size_t at, size_t bucket, size_t length) {
      std::ranges::copy(own.subspan(bucket, length), work.subspan(at - begin).begin());
    });
    kernel::flip_signs(draw_signs(key, row, begin, size, scratch), work, work);
    return work;
  }

  // Calls each(at, bucket, length) for values [begin, begin + size), cut where a run ends or
  // buckets begin anew.
  template <typename Each>
  void each_stretch(Turns& turns, size_t begin, size_t size, const Each& each) const {
    for (size_t at = begin, length = 0; at < begin + size; at += length) {
      const size_t place = at % buckets_;
      const size_t turned = place + turns(at / buckets_);
      const size_t bucket = turned < buckets_ ? turned : turned - buckets_;
      length = std::min({begin + size - at, buckets_ - place, buckets_ - bucket});
      each(at, bucket, length);
    }
  }

  // Times f, which knows how many values a bucket has: one more in those that the last run, a short
  // one, reaches.
  void scale(Turns& turns, float factor, std::span<float> own) const {
    const size_t runs = count_ / buckets_, left = count_ % buckets_;
    const float few = factor_of(runs), many = factor_of(runs + 1);
    const size_t turn = left > 0 ? turns(runs) : 0;
    for (size_t bucket = 0; bucket < buckets_; ++bucket) {
      const size_t place = bucket < turn ? bucket + buckets_ - turn : bucket - turn;
      own[bucket] = bounded_sum(own[bucket], place < left ? many : few, factor);
    }
  }

  // f, of a bucket of so many values.
  float factor_of(size_t values) const {
    if (scaled_) return 1;
    const double w = rows_ == 1 ? 1 : rows_ == 3 ? 0.449 : 0.287;
    return static_cast<float>(1 / (1 + w * (static_cast<double>(values) - 1)));
  }

  const size_t count_;
  const size_t rows_;
  const size_t buckets_;  // of a row: m
  const bool scaled_;
};

std::unique_ptr<Codec> make(const Options& options) {
  const auto rows = static_cast<size_t>(options.text("rows").front() - '0');
  return make_sketch_codec(
      kInfo, options,
      [rows, density = options.number("density"), scaled = options.flag("scaled")](size_t count) {
        return std::make_unique<CountSketch>(count, rows, density, scaled);
      });
}

}  // namespace

const CodecEntry& countsketch_entry() {
  static const CodecEntry entry{
      .info = kInfo,
      .options = sketch_options({{.name = "rows",
                                  .type = OptionType::kChoice,
                                  .fallback = "1",
                                  .choices = {"1", "3", "5"},
                                  .help = "estimates of a value, of which the median counts"}}),
      .make = make};
  return entry;
}

}  // namespace thinwire
