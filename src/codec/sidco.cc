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

#include "codec/builtin.h"
#include "codec/exceedance_list.h"
#include "codec/sparse_payload.h"
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
                          .grouping = Grouping::kModel};

std::vector<OptionInfo> options_table() {
  return {
      {.name = "density",
       .type = OptionType::kNumber,
       .fallback = "0.01",
       .min = 1e-6,
       .max = 1,
       .unit = "fraction",
       .help = "delta: values to keep"},
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
      {.name = "cap",
       .type = OptionType::kNumber,
       .fallback = "4",
       .min = 0,
       .max = 1e6,
       .unit = "targets",
       .help = "keeps at most so many, the largest; below 1: no limit"},
      value_format_option(),
  };
}

struct Method {
  explicit Method(const Options& options)
      : cap(options.number("cap")), format(value_format(options)) {
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

  // k: what is asked for. At least one, or tiny tensors would never be sent.
  size_t target(size_t count) const noexcept {
    const auto wanted =
        static_cast<size_t>(std::llround(tail.density * static_cast<double>(count)));
    return std::min(count, std::max<size_t>(wanted, 1));
  }

  size_t most(size_t count) const noexcept {
    const double limit = cap * static_cast<double>(target(count));
    return cap < 1 || limit >= static_cast<double>(count) ? count : static_cast<size_t>(limit);
  }

  TailMethod tail;
  StageRule rule;
  double cap;
  ValueFormat format;
};

class SidcoEncoder final : public Encoder {
 public:
  SidcoEncoder(const Method& method, size_t count)
      : target_(method.target(count)),
        most_(method.most(count)),
        count_(count),
        format_(method.format),
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
    const bool exact = format_ == ValueFormat::kFp32;
    const size_t size = write_sparse(list_.positions(), list_.values(), format_, out,
                                     exact ? std::span<float>() : list_.values());
    if (!exact && !rest.empty())
      for (size_t i = 0; i < kept; ++i) rest[list_.positions()[i]] = list_.values()[i];
    return {.size = size, .kept = kept, .target = target_};
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
    TailEstimator::Estimate estimate;
    if (stages_.scan_due()) {
      const auto choice = estimator_.nearest(stages_.max_stages(), target_, list_);
      stages_.choose(choice.stages);
      estimate = choice.estimate;
    } else {
      estimate = estimator_.estimate(stages_.stages(), list_);
    }
    size_t estimated;
    if (estimate.listed) {
      estimated = list_.size();
      if (estimated > most_) list_.keep_largest(most_, {});
      leave(values, rest);
    } else {
      list_.select(values, estimate.threshold, most_, rest);
      estimated =
          list_.size() < most_ ? list_.size() : kernel::count_above(values, estimate.threshold);
    }
    stages_.record(static_cast<double>(estimated) / static_cast<double>(target_));
  }

  void leave(std::span<const float> values, std::span<float> rest) const {
    if (rest.empty()) return;
    if (rest.data() != values.data()) std::copy(values.begin(), values.end(), rest.begin());
    for (const uint32_t position : list_.positions()) rest[position] = 0.0f;
  }

  size_t target_;
  size_t most_;
  size_t count_;
  ValueFormat format_;
  TailEstimator estimator_;
  StageControl stages_;
  ExceedanceList list_;
};

class SidcoDecoder final : public Decoder {
 public:
  explicit SidcoDecoder(ValueFormat format) : format_(format) {}

  Status decode_add(std::span<const std::byte> payload, float weight,
                    std::span<float> out) const override {
    return add_sparse(payload, format_, weight, out);
  }

 private:
  ValueFormat format_;
};

class SidcoCodec final : public Codec {
 public:
  explicit SidcoCodec(const Options& options) : method_(options) {}

  const CodecInfo& info() const noexcept override { return kInfo; }
  size_t max_encoded_size(const StreamSpec& stream) const override {
    require_sparse_stream(kInfo.name, stream);
    return max_sparse_size(stream.count(), method_.most(stream.count()), method_.format);
  }
  std::unique_ptr<Encoder> make_encoder(const StreamSpec& stream) const override {
    require_sparse_stream(kInfo.name, stream);
    return std::make_unique<SidcoEncoder>(method_, stream.count());
  }
  std::unique_ptr<const Decoder> make_decoder(const StreamSpec& stream) const override {
    require_sparse_stream(kInfo.name, stream);
    return std::make_unique<SidcoDecoder>(method_.format);
  }

 private:
  Method method_;
};

}  // namespace

const CodecEntry& sidco_entry() {
  static const CodecEntry entry{
      .info = kInfo, .options = options_table(), .make = [](const Options& options) {
        return std::make_unique<SidcoCodec>(options);
      }};
  return entry;
}

}  // namespace thinwire
