// SIDCo: keeps what exceeds a threshold estimated from a law fitted to the magnitudes [Abdelmoniem
// et al., MLSys 2021].
//
//   decode(encode(u))[i] = u[i] if |u[i]| > eta, else 0;   eta: codec/tail_estimator.h
//
// How many values that keeps is an estimate's outcome, neither trimmed nor filled up, with two
// exceptions of ours. At most `cap` times the target are kept, the largest ones: the method itself
// has no limit, and receivers need one. Where no law can be fitted (fewer than 64 values, or all
// magnitudes alike) exactly the target is kept, the largest. A vector of zeros sends nothing.
//
// Payload: codec/sparse_payload.h.
//
// Reads memory twice to four times: prepare's pass, the estimator's none to two, and one that
// selects and leaves the remainder, which a list of the estimator's saves.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "codec/builtin.h"
#include "codec/device_sparse.h"
#include "codec/device_tail_estimator.h"
#include "codec/sparse_codec.h"
#include "codec/stage_control.h"
#include "codec/tail_estimator.h"
#include "core/check.h"
#include "kernel/select.h"
#include "kernel/vector_moments.h"

namespace thinwire {
namespace {

constexpr CodecInfo kInfo{.name = "sidco",
                          .id = 6,
                          .summary = "what exceeds a threshold from a fitted tail",
                          .paper = "SIDCo, MLSys 2021, arXiv:2101.10761",
                          .sparse = true,
                          .global_threshold = true,
                          .grouping = Grouping::kModel};

std::vector<OptionInfo> options_table() {
  return {
      density_option(),
      {.name = "law",
       .type = OptionType::kChoice,
       .fallback = "pareto",
       .choices = {"exponential", "pareto", "gamma_pareto"},
       .help = "SIDCo-E, SIDCo-P (nearest to the target), SIDCo-GP"},
      {.name = "stages",
       .type = OptionType::kInteger,
       .fallback = "0",
       .min = 0,
       .max = 10,
       .help = "M: laws fitted one after another; 0 adapts"},
      {.name = "adapt",
       .type = OptionType::kChoice,
       .fallback = "scan",
       .choices = {"scan", "plain"},
       .help = "scan: the best count for the vector at hand; plain: the paper's rule"},
      {.name = "window",
       .type = OptionType::kInteger,
       .fallback = "5",
       .min = 1,
       .max = 1000,
       .unit = "steps",
       .help = "Q: between two adaptions"},
      {.name = "tolerance_high",
       .type = OptionType::kNumber,
       .fallback = "0.2",
       .min = 0,
       .max = 10,
       .unit = "fraction",
       .help = "eps_H: plain takes a stage away above target times 1 + this"},
      {.name = "tolerance_low",
       .type = OptionType::kNumber,
       .fallback = "0.2",
       .min = 0,
       .max = 1,
       .unit = "fraction",
       .help = "eps_L: plain adds a stage below target times 1 - this"},
      {.name = "first_ratio",
       .type = OptionType::kNumber,
       .fallback = "0.25",
       .min = 0.01,
       .max = 0.99,
       .unit = "fraction",
       .help = "delta_1: share that the first of several stages keeps"},
      {.name = "gamma_threshold",
       .type = OptionType::kChoice,
       .fallback = "exact",
       .choices = {"exact", "closed"},
       .help = "closed keeps too few below shape 1"},
      cap_option(),
      value_format_option(),
  };
}

struct Method {
  explicit Method(const Options& options) : cap(options.number("cap")) {
    const std::string& law = options.text("law");
    tail = {.law = law == "pareto"         ? TailLaw::kPareto
                   : law == "gamma_pareto" ? TailLaw::kGammaPareto
                                           : TailLaw::kExponential,
            .closed_gamma = options.text("gamma_threshold") == "closed",
            .density = options.number("density"),
            .first_ratio = options.number("first_ratio")};
    rule = {.fixed = static_cast<int>(options.integer("stages")),
            .scan = options.text("adapt") == "scan",
            .window = static_cast<int>(options.integer("window")),
            .tolerance_high = options.number("tolerance_high"),
            .tolerance_low = options.number("tolerance_low"),
            .max_stages = max_stages(tail.density)};
  }

  size_t target(size_t count) const noexcept { return kept_target(tail.density, count); }
  size_t most(size_t count) const noexcept { return kept_limit(cap, target(count), count); }

  TailMethod tail;
  StageRule rule;
  double cap;
};

// The number of stages of this step, and their estimate.
TailEstimator::Estimate estimate_tail(TailEstimator& estimator, StageControl& stages, size_t target,
                                      ExceedanceList& list) {
  if (!stages.scan_due()) return estimator.estimate(stages.stages(), list);
  const auto choice = estimator.nearest(stages.max_stages(), target, list);
  stages.choose(choice.stages);
  return choice.estimate;
}

class SidcoEncoder final : public Encoder {
 public:
  SidcoEncoder(const Method& method, size_t count, ValueFormat format)
      : target_(method.target(count)),
        most_(method.most(count)),
        count_(count),
        format_(format),
        estimator_(method.tail),
        stages_(method.rule) {}

  Encoded encode(const Signal& signal, const Call& /*call*/, std::span<std::byte> out,
                 std::span<float> rest) override {
    const auto values = signal.values;
    THINWIRE_CHECK(values.size() == count_, "sidco: values are not as many as the stream has");
    const Moments moments = signal.moments ? *signal.moments : kernel::moments(values);
    THINWIRE_CHECK(moments.finite, "sidco: values are not finite");
    stages_.rollback();  // an encode that was neither committed nor rolled back
    if (!values.empty()) choose(values, moments, rest);
    const size_t kept = list_.size();
    return {.size = write_list(list_, format_, out, rest),
            .kept = kept,
            .target = target_,
            .positions = list_.positions()};
  }

  void commit() override { stages_.commit(); }
  void rollback() override { stages_.rollback(); }
  StateArrays save() const override { return stages_.save(); }
  Status load(const StateArrays& arrays) override { return stages_.load(arrays); }

 private:
  // Fills the list with what is sent, and leaves zeros in its place in `rest`.
  void choose(std::span<const float> values, const Moments& moments, std::span<float> rest) {
    if (!estimator_.begin(values, moments)) {
      list_.select(values, 0.0f, target_, rest);
      return;
    }
    const auto estimate = estimate_tail(estimator_, stages_, target_, list_);
    size_t estimated;
    if (estimate.listed) {
      estimated = list_.size();
      if (estimated > most_) list_.keep_largest(most_, {});
      list_.leave(values, rest);
    } else {
      list_.select(values, estimate.threshold, most_, rest);
      estimated = list_.size();
      if (estimated == most_) {  // those listed are zeros in `values` where that is `rest`
        estimated = kernel::count_above(values, estimate.threshold);
        if (rest.data() == values.data()) estimated += most_;
      }
    }
    stages_.record(static_cast<double>(estimated) / static_cast<double>(target_));
  }

  size_t target_;
  size_t most_;
  size_t count_;
  ValueFormat format_;
  TailEstimator estimator_;
  StageControl stages_;
  ExceedanceList list_;
};

class SidcoDeviceEncoder final : public DeviceSparseEncoder {
 public:
  SidcoDeviceEncoder(const SharedWork& work, const Method& method, size_t count, ValueFormat format)
      : DeviceSparseEncoder(work, format, count, method.target(count)),
        target_(method.target(count)),
        most_(method.most(count)),
        estimator_(method.tail, work),
        stages_(method.rule) {}

  void commit() override { stages_.commit(); }
  void rollback() override { stages_.rollback(); }
  StateArrays save() const override { return stages_.save(); }
  Status load(const StateArrays& arrays) override { return stages_.load(arrays); }

 private:
  Keeping keeping(const Signal& signal, const Call& /*call*/) override {
    const Moments moments =
        signal.moments ? *signal.moments : device::measure(work(), signal.values);
    THINWIRE_CHECK(moments.finite, "sidco: values are not finite");
    stages_.rollback();  // an encode that was neither committed nor rolled back
    fits_ = estimator_.begin(signal.values, moments);
    if (!fits_) return {.threshold = 0, .most = target_, .keep = target_};
    const auto estimate = estimate_tail(estimator_, stages_, target_, list_);
    return {.threshold = estimate.threshold, .most = most_, .keep = most_};
  }
  void exceeded(size_t values) override {
    if (fits_) stages_.record(static_cast<double>(values) / static_cast<double>(target_));
  }

  size_t target_;
  size_t most_;
  DeviceTailEstimator estimator_;
  StageControl stages_;
  ExceedanceList list_;  // stays empty
  bool fits_ = false;    // a law, this step
};

std::unique_ptr<Codec> make_codec_of(const Options& options) {
  return std::make_unique<MethodCodec<Method, SidcoEncoder>>(kInfo, options, value_format(options));
}

std::unique_ptr<Codec> make_on_device(const Options& options, const SharedWork& work) {
  return make_sparse_device_codec(
      make_codec_of(options), work,
      [=, method = Method(options), format = value_format(options)](size_t count) {
        return std::make_unique<SidcoDeviceEncoder>(work, method, count, format);
      });
}

}  // namespace

const CodecEntry& sidco_entry() {
  static const CodecEntry entry{.info = kInfo,
                                .options = options_table(),
                                .make = make_codec_of,
                                .on_device = make_on_device};
  return entry;
}

}  // namespace thinwire
