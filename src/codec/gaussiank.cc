// gaussiank: what exceeds the threshold that a normal law puts at the density, adjusted by halves
// [Shi et al., arXiv:1911.08772].
//
//   mu, sigma = mean and standard deviation of x        k = density x count
//   t = |mu| + sigma Phi^-1(1 - density / 2)
//   at most 3 times: t <- t / 2 if fewer than 2k/3 values exceed t, 3t/2 if more than 4k/3
//   sent: |x_i| > t
//
// Gradients are rarely normal, and the adjustment is coarse: it may step over the target and back,
// and stops wherever it is after its last one. So the number kept scatters widely, and needs bounds
// that the paper does not have: at most `cap` targets are kept, the largest. Where nothing exceeds
// the last threshold, all values are alike (sigma = 0), or the target is everything, exactly k are
// kept, the largest; zeros never.
//
// With the paper's mu in place of |mu| a vector and its negative would keep different values.
//
// Payload: codec/sparse_payload.h.
//
// Once the first steps have shown how low thresholds get, encoding reads the values once
// (codec/threshold_probe.h).
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <boost/math/special_functions/erf.hpp>
#include <cmath>
#include <numbers>

#include "codec/builtin.h"
#include "codec/sparse_codec.h"
#include "codec/threshold_probe.h"
#include "core/check.h"
#include "kernel/vector_moments.h"

namespace thinwire {
namespace {

constexpr CodecInfo kInfo{.name = "gaussiank",
                          .id = 10,
                          .summary = "what exceeds a normal law's threshold, adjusted",
                          .paper = "Shi et al., arXiv:1911.08772",
                          .sparse = true,
                          .global_threshold = true};

constexpr double kAlike = 1e-12;  // variance over mean square: a spread of a millionth

std::vector<OptionInfo> options_table() {
  return {density_option(),
          {.name = "adjustments",
           .type = OptionType::kInteger,
           .fallback = "3",
           .min = 0,
           .max = 10,
           .help = "of the threshold, at most; 5 in the form without feedback"},
          cap_option(),
          value_format_option()};
}

struct Method {
  explicit Method(const Options& options)
      : density(options.number("density")),
        adjustments(options.integer("adjustments")),
        cap(options.number("cap")),
        // Phi^-1(1 - p/2) = sqrt(2) erfc^-1(p)
        quantile(std::numbers::sqrt2 * boost::math::erfc_inv(density)) {}

  size_t target(size_t count) const noexcept { return kept_target(density, count); }
  size_t most(size_t count) const noexcept { return kept_limit(cap, target(count), count); }

  double density;
  int64_t adjustments;
  double cap;
  double quantile;
};

class GaussiankEncoder final : public Encoder {
 public:
  GaussiankEncoder(const Method& method, size_t count, ValueFormat format)
      : method_(method),
        count_(count),
        target_(method.target(count)),
        most_(method.most(count)),
        format_(format) {}

  Encoded encode(const Signal& signal, const Call& /*call*/, std::span<std::byte> out,
                 std::span<float> rest) override {
    const auto values = signal.values;
    THINWIRE_CHECK(values.size() == count_, "gaussiank: values are not as many as the stream has");
    const Moments moments = signal.moments ? *signal.moments : kernel::moments(values);
    THINWIRE_CHECK(moments.finite, "gaussiank: values are not finite");
    if (count_ > 0 && !select_by_law(values, moments, rest))
      probe_.list().select(values, 0.0f, target_, rest);
    const size_t kept = probe_.list().size();
    return {.size = write_list(probe_.list(), format_, out, rest),
            .kept = kept,
            .target = target_,
            .positions = probe_.list().positions()};
  }

 private:
  // False, with nothing in `rest`, where the law says nothing or keeps nothing.
  bool select_by_law(std::span<const float> values, const Moments& moments, std::span<float> rest) {
    if (target_ == count_) return false;
    const auto count = static_cast<double>(count_);
    const double sum = probe_.begin_with_sum(values, 4 * target_ / 3);
    const double variance = (moments.square_sum - sum * (sum / count)) / (count - 1);
    if (!(variance > kAlike * moments.square_sum / count)) return false;
    double threshold = std::abs(sum / count) + method_.quantile * std::sqrt(variance);
    size_t kept = probe_.count(to_threshold(threshold));
    for (int64_t left = method_.adjustments; left > 0; --left) {
      if (3 * kept < 2 * target_) {
        threshold *= 0.5;
      } else if (3 * kept > 4 * target_) {
        threshold *= 1.5;
      } else {
        break;
      }
      kept = probe_.count(to_threshold(threshold));
    }
    if (kept == 0) return false;
    probe_.take(to_threshold(threshold), most_, rest);
    return true;
  }

  Method method_;
  size_t count_;
  size_t target_;
  size_t most_;
  ValueFormat format_;
  ThresholdProbe probe_;
};

}  // namespace

const CodecEntry& gaussiank_entry() {
  static const CodecEntry entry{
      .info = kInfo, .options = options_table(), .make = [](const Options& options) {
        return std::make_unique<MethodCodec<Method, GaussiankEncoder>>(kInfo, options,
                                                                       value_format(options));
      }};
  return entry;
}

}  // namespace thinwire
