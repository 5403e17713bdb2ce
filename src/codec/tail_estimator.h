// TailEstimator: SIDCo's threshold, from laws fitted to ever smaller tails of the magnitudes.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "codec/exceedance_list.h"
#include "codec/tail_laws.h"
#include "kernel/tail_moments.h"
#include "thinwire/moments.h"

namespace thinwire {

enum class TailLaw { kExponential, kPareto, kGammaPareto };  // gamma first, Pareto after

struct TailMethod {
  TailLaw law = TailLaw::kExponential;
  bool closed_gamma = false;
  double density = 0.01;
  double first_ratio = 0.25;
};

// Estimates for one vector after another. Stage 1 fits all magnitudes. Each later stage fits the
// excesses a - mn over the smallest kept magnitude mn of those that the stage before kept, and puts
// its threshold at mn + that of the fitted law, as the authors' code does. A stage that keeps fewer
// than kFew values, or values all alike, has no tail to fit: the threshold before it stands.
//
// Passes over memory: none for one stage (moments are given; one for a gamma law). For more, one
// sums up what the first stage kept, and a second lists what the second stage kept; later stages
// read the list only. From the second vector on with the same number of stages, the first pass
// lists as well, what exceeds a little less than the last second threshold: if that turns out below
// the new one, as it does unless magnitudes shrink by a tenth from one vector to the next, there is
// no second pass.
//
// Sums run over the vector in stage 2, and over the list from stage 3 on, each in fixed chunks: a
// threshold is a function of the values alone, the same bits on every SIMD target, and moves with
// the values' exponent exactly.
class TailEstimator {
 public:
  static constexpr size_t kFew = 8;
  static constexpr size_t kFewest = 64;  // values of a vector

  explicit TailEstimator(const TailMethod& method) : method_(method) {}
  virtual ~TailEstimator() = default;

  // Takes a vector, which must stay until the last estimate. Returns false when no law can be
  // fitted: fewer than kFewest values, or all magnitudes alike to a millionth (zeros included).
  bool begin(std::span<const float> values, const Moments& moments);

  struct Estimate {
    float threshold = 0;  // keep |x| > threshold
    bool listed = false;  // `list` holds exactly those already
  };
  // REQUIRES: begin was true.
  Estimate estimate(int stages, ExceedanceList& list);

  struct Choice {
    int stages = 1;
    Estimate estimate;
  };
  // The number of stages, at most `most`, that keeps a number of values nearest to `target`: the
  // least of equals, and none that keeps nothing if another keeps something. With its estimate.
  Choice nearest(int most, size_t target, ExceedanceList& list);

 protected:
  std::span<const float> values() const noexcept { return values_; }
  float largest() const noexcept { return largest_; }
  // More entries than this are no list.
  size_t list_limit() const noexcept;

 private:
  // The passes over the vector. One that lies in another memory than the processor's has its own.
  virtual kernel::TailMoments tail(float threshold);
  virtual kernel::TailMoments tail_of_list(float threshold);  // of the list above it
  virtual bool collect(float threshold, ExceedanceList& list);
  // Both in one pass, or false and nothing else.
  virtual bool collect_with_tail(float threshold, ExceedanceList& list, float tail_threshold,
                                 std::optional<kernel::TailMoments>& tail);
  virtual size_t count_above(float threshold);
  virtual double log_sum(double guard, double unit);

  float first_threshold(double ratio);
  const kernel::TailMoments& first_tail();
  bool first_tail_and_list(float hint, ExceedanceList& list);
  std::optional<float> next_threshold(const kernel::TailMoments& tail, float threshold,
                                      double ratio) const;
  float list_stages(int stages, float second, double ratio, ExceedanceList& list) const;
  float stream_stages(int stages, float second, double ratio);
  size_t count_from_list(int stages, float second, double ratio, const ExceedanceList& list);

  TailMethod method_;
  std::span<const float> values_;
  double mean_ = 0;
  double variance_ = 0;
  double norm_ = 0;
  float largest_ = 0;
  std::optional<GammaLaw> gamma_;            // fitted when first asked for
  std::optional<kernel::TailMoments> tail_;  // above the first threshold of several
  std::vector<float> scratch_;
  // What the next vector's second threshold will hardly be below. Costs time when wrong, never
  // changes a result, and so is not part of any saved state. 0: unknown.
  float hint_ = 0;
  int hint_stages_ = 0;  // that hint_ is for
  float scan_hint_ = 0;  // for nearest()
};

}  // namespace thinwire
