// redsync: a threshold between the mean and the largest magnitude [Fang et al., arXiv:1808.04357].
//
//   t(r) = mean |x| + r (max |x| - mean |x|)        k = density x count
//
// search=threshold: bisects r in [0, 1] until k to 2k values exceed t(r), or r is known to
//   `resolution`. What exceeds it is sent. The threshold then serves for `reuse` steps.
// search=trimmed: the k largest, exactly; a ladder of thresholds trims the rest away first.
// quantized: sends only values of one sign and one mean for all of them; the sign alternates from
//   step to step, or is the other one if there are none of its own.
//
// The threshold never falls below the mean: at densities above the share of values that exceed it,
// search=threshold keeps that share. At most `cap` targets are kept, the largest (ours: a reused
// threshold knows no bound). Where nothing exceeds the threshold or all magnitudes are alike
// exactly k are kept; zeros never.
//
// The routine that public code attributes to RedSync differs: it stops at a resolution of 0.2,
// after three midpoints wherever the count may be; raises the threshold while k/2 to k pass; does
// not accept exactly k; and its trimmed form sends all of the survivors.
//
// Payload: codec/sparse_payload.h; quantized: in its format `mean`, so that a value costs its
// position alone.
//
// Encoding reads the values once: searching, once the first steps have shown how low thresholds get
// (codec/threshold_probe.h), and with a threshold in hand.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cmath>

#include "codec/builtin.h"
#include "codec/sparse_codec.h"
#include "codec/threshold_probe.h"
#include "core/check.h"
#include "kernel/vector_moments.h"

namespace thinwire {
namespace {

constexpr CodecInfo kInfo{.name = "redsync",
                          .id = 11,
                          .summary = "what exceeds a threshold searched from mean to maximum",
                          .paper = "RedSync, arXiv:1808.04357",
                          .sparse = true,
                          .global_threshold = true};

// Quantised, it sends positive and negative values in turn, and has a threshold for each sign.
CodecInfo info_with(bool quantized) {
  CodecInfo info = kInfo;
  info.global_threshold = !quantized;
  return info;
}

constexpr double kAlike = 1e-6;  // (max - mean) / mean
constexpr double kRung = 0.2;    // of the ladder, in r
constexpr float kHint = 0.9f;    // of the k-th magnitude: where the next vector's search begins

std::vector<OptionInfo> options_table() {
  return {density_option(),
          {.name = "search",
           .type = OptionType::kChoice,
           .fallback = "threshold",
           .choices = {"threshold", "trimmed"},
           .help = "threshold: k to 2k values, for large tensors; trimmed: exactly k"},
          {.name = "resolution",
           .type = OptionType::kNumber,
           .fallback = "0.001",
           .min = 1e-6,
           .max = 0.5,
           .unit = "fraction",
           .help = "eps: of the way from mean to maximum, where the search ends"},
          {.name = "reuse",
           .type = OptionType::kInteger,
           .fallback = "5",
           .min = 1,
           .max = 1000,
           .unit = "steps",
           .help = "that a threshold serves; trimmed has none"},
          {.name = "quantized",
           .type = OptionType::kFlag,
           .fallback = "false",
           .help = "values of one sign in turn as their mean; `values` does not count"},
          cap_option(),
          value_format_option()};
}

struct Method {
  explicit Method(const Options& options)
      : density(options.number("density")),
        trimmed(options.text("search") == "trimmed"),
        resolution(options.number("resolution")),
        reuse(options.integer("reuse")),
        quantized(options.flag("quantized")),
        cap(options.number("cap")) {}

  size_t target(size_t count) const noexcept { return kept_target(density, count); }
  size_t most(size_t count) const noexcept {
    return trimmed ? target(count) : kept_limit(cap, target(count), count);
  }

  double density;
  bool trimmed;
  double resolution;
  int64_t reuse;
  bool quantized;
  double cap;
};

class RedsyncEncoder final : public Encoder {
 public:
  RedsyncEncoder(const Method& method, size_t count, ValueFormat format)
      : method_(method),
        count_(count),
        target_(method.target(count)),
        most_(method.most(count)),
        format_(format) {}

  Encoded encode(const Signal& signal, const Call& /*call*/, std::span<std::byte> out,
                 std::span<float> rest) override {
    const auto values = signal.values;
    THINWIRE_CHECK(values.size() == count_, "redsync: values are not as many as the stream has");
    const Moments moments = signal.moments ? *signal.moments : kernel::moments(values);
    THINWIRE_CHECK(moments.finite, "redsync: values are not finite");
    next_ = committed_;  // an encode that was neither committed nor rolled back
    if (count_ > 0) choose(values, moments, rest);
    const size_t kept = list().size();
    return {.size = write_list(list(), format_, out, rest),
            .kept = kept,
            .target = target_,
            .positions = list().positions()};
  }

  void commit() override { committed_ = next_; }
  void rollback() override { next_ = committed_; }
  StateArrays save() const override;
  Status load(const StateArrays& arrays) override;

 private:
  // Of positive values, which is where those of both signs are kept too, and of negative ones.
  struct State {
    std::array<float, 2> threshold = {};
    std::array<int64_t, 2> age = {};  // steps that it served; 0: there is none
    int64_t turn = 0;                 // whose sign it is
  };

  ExceedanceList& list() noexcept { return probe_.list(); }

  void choose(std::span<const float> values, const Moments& moments, std::span<float> rest) {
    if (!method_.quantized) return select(values, moments, rest, 0);
    const auto turn = static_cast<size_t>(next_.turn);
    next_.turn = 1 - next_.turn;
    for (const size_t side : {turn, 1 - turn}) {
      list().only(side == 0 ? kernel::Side::kPositive : kernel::Side::kNegative);
      select(values, moments, rest, side);
      if (list().size() > 0) return;
    }
  }

  void select(std::span<const float> values, const Moments& moments, std::span<float> rest,
              size_t side) {
    const double mean = moments.abs_sum / static_cast<double>(count_);
    const double spread = moments.abs_max - mean;
    if (target_ == count_ || !(spread > kAlike * mean)) {
      list().select(values, 0.0f, target_, rest);
    } else if (method_.trimmed) {
      trim(values, mean, spread, rest, side);
    } else if (!reuse(values, rest, side)) {
      search(values, mean, spread, rest, side);
    }
  }

  // A threshold that serves on. False where there is none, or nothing exceeds it any more.
  bool reuse(std::span<const float> values, std::span<float> rest, size_t side) {
    if (next_.age[side] == 0) return false;
    list().select(values, next_.threshold[side], most_, rest);
    next_.age[side] = (next_.age[side] + 1) % method_.reuse;
    return list().size() > 0;
  }

  void search(std::span<const float> values, double mean, double spread, std::span<float> rest,
              size_t side) {
    probe_.begin(values, 2 * target_);
    float threshold = 0;
    size_t kept = 0;
    for (double low = 0, high = 1; high - low > method_.resolution;) {
      const double r = (low + high) / 2;
      threshold = to_threshold(mean + r * spread);
      kept = probe_.count(threshold);
      if (target_ <= kept && kept <= 2 * target_) break;
      (kept < target_ ? high : low) = r;
    }
    if (kept == 0) return list().select(values, 0.0f, target_, rest);
    probe_.take(threshold, most_, rest);
    next_.threshold[side] = threshold;
    next_.age[side] = 1 % method_.reuse;
  }

  // Whatever threshold at least k values exceed, the k largest of them are the same.
  void trim(std::span<const float> values, double mean, double spread, std::span<float> rest,
            size_t side) {
    float threshold = hint_[side] > 0 ? hint_[side] : to_threshold(mean + (1 - kRung) * spread);
    list().select(values, threshold, target_, {});
    for (double r = 1 - kRung; threshold > 0 && list().size() < target_; r -= kRung) {
      const float rung = r < -kRung / 2 ? 0.0f : to_threshold(mean + std::max(r, 0.0) * spread);
      if (rung >= threshold) continue;
      threshold = rung;
      list().select(values, threshold, target_, {});
    }
    list().leave(values, rest);
    hint_[side] = list().size() == 0 ? 0 : kHint * list().keep_largest(target_, {});
  }

  Method method_;
  size_t count_;
  size_t target_;
  size_t most_;
  ValueFormat format_;
  State committed_;
  State next_;
  std::array<float, 2> hint_ = {};  // changes how often memory is read, and nothing else
  ThresholdProbe probe_;
};

StateArrays RedsyncEncoder::save() const {
  const int64_t counts[] = {committed_.age[0], committed_.age[1], committed_.turn};
  return {make_state("thresholds", std::span<const float>(committed_.threshold), OnResize::kCopy),
          make_state("ages", std::span<const int64_t>(counts), OnResize::kCopy)};
}

Status RedsyncEncoder::load(const StateArrays& arrays) {
  State state;
  int64_t counts[3];
  if (Status status = copy_state(arrays, "thresholds", std::span<float>(state.threshold)); !status)
    return status;
  if (Status status = copy_state(arrays, "ages", counts); !status) return status;
  bool good = counts[2] == 0 || counts[2] == 1;
  for (size_t side = 0; side < 2; ++side) {
    good &= 0 <= counts[side] && counts[side] < method_.reuse;
    good &= std::isfinite(state.threshold[side]) && state.threshold[side] >= 0;
    state.age[side] = counts[side];
  }
  if (!good) return Status::fail(ErrorCode::kMismatch, "redsync: the saved state is out of range");
  state.turn = counts[2];
  next_ = committed_ = state;
  return Status::ok();
}

}  // namespace

const CodecEntry& redsync_entry() {
  static const CodecEntry entry{
      .info = kInfo, .options = options_table(), .make = [](const Options& options) {
        return std::make_unique<MethodCodec<Method, RedsyncEncoder>>(
            info_with(options.flag("quantized")), options,
            options.flag("quantized") ? ValueFormat::kMean : value_format(options));
      }};
  return entry;
}

}  // namespace thinwire
