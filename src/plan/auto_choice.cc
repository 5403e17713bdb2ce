// AutoChoice: one codec for all tensors first, then others for those of a size where that is
// faster.
// SPDX-License-Identifier: Apache-2.0
#include "plan/auto_choice.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <utility>

#include "exchange/terms/sections.h"
#include "thinwire/codec_and_method.h"

namespace thinwire {
namespace {

constexpr double kWorthMoreLoss = 1.02;
constexpr double kWorthAnException = 1.01;
// In the laboratory steps of 10 ms took up to 1.8 times what was predicted beside other codecs;
// most of that was communication.
constexpr double kSurelyNeeded = 0.6;
// Of the predicted time in which the wire is busy, where a codec's bytes are known: the rate of the
// link is, from a short probe.
constexpr double kSurelyOnTheWire = 0.8;
constexpr double kWorthATrial = 1.05;
// Of predicted steps. In docs/results/plan.md 127 of 128 codecs are within 1.3 times of the median
// one of their recipe and link, as shares of what is predicted.
constexpr double kError = 0.3;
// Of the time in which messages are on the wire: a thread that looks for them takes turns with the
// arithmetic on one core.
constexpr double kTakenByMessages = 0.5;

// Predicted steps that are so near each other may be the other way round: predictions are mostly
// within 15 % (docs/results/plan.md).
constexpr double kAlike = 1.15;

// Values: a tensor of the first class is smaller than its frames' costs, one of the last is in
// chunks of its own.
constexpr std::array<size_t, 3> kClassEnds = {size_t{1} << 12, size_t{1} << 16, SIZE_MAX};

// Of an exchange or a rule.
template <typename Setting>
void set_codec(Setting& setting, const std::string& text) {
  CodecAndMethod parts = codec_and_method(text);
  setting.codec = std::move(parts.codec);
  setting.method = std::move(parts.method);
  setting.grouping = Grouping::kTensor;
}

std::string pattern_of(const std::string& name) {
  std::string pattern;
  for (const char letter : name)
    pattern += letter == '*' || letter == '?' || letter == '[' ? std::string("[") + letter + "]"
                                                               : std::string(1, letter);
  return pattern;
}

AllowedLoss loss_of(const std::string& codec) {
  for (const AllowedLoss loss : {AllowedLoss::kNone, AllowedLoss::kSmall}) {
    const std::vector<std::string> all = auto_candidates(loss);
    if (std::find(all.begin(), all.end(), codec) != all.end()) return loss;
  }
  return AllowedLoss::kAny;
}

// Of all tensors.
AllowedLoss loss_of(const AutoDecision& decision) {
  AllowedLoss most = loss_of(decision.codec);
  for (const auto& [name, codec] : decision.others) most = std::max(most, loss_of(codec));
  return most;
}

}  // namespace

std::vector<std::string> auto_candidates(AllowedLoss loss) {
  std::vector<std::string> all = {"fp32"};
  for (const CodecEntry* entry : list_codecs())
    if (entry->info.lossless && entry->info.name != "fp32") all.emplace_back(entry->info.name);
  if (loss == AllowedLoss::kNone) return all;
  all.insert(all.end(), {"fp16", "bf16", "int8"});
  if (loss == AllowedLoss::kSmall) return all;
  all.insert(all.end(), {"powersgd:rank=4", "sidco:density=0.01", "topk:density=0.01",
                         "topk:density=0.01 @ sparse-reduce"});
  return all;
}

ExchangeOptions decided_options(ExchangeOptions base, const AutoDecision& decision) {
  set_codec(base, decision.codec);
  for (const auto& [name, codec] : decision.others) {
    TensorRule rule{.pattern = pattern_of(name), .codec = {}, .feedback = base.feedback};
    set_codec(rule, codec);
    base.rules.push_back(std::move(rule));
  }
  return base;
}

bool same_codecs(const AutoDecision& a, const AutoDecision& b) {
  return a.codec == b.codec && a.others == b.others;
}

std::string name_of(const AutoDecision& decision, size_t tensors) {
  std::map<std::string, size_t> others;
  for (const auto& [name, codec] : decision.others) ++others[codec];
  std::string text = decision.codec;
  for (const auto& [codec, count] : others)
    text += ", " + codec + " for " + std::to_string(count) + " of " + std::to_string(tensors) +
            " tensors";
  return text;
}

AutoChoice::AutoChoice(ExchangeOptions base, std::vector<TensorSpec> tensors, CostTable costs)
    : base_(std::move(base)),
      tensors_(std::move(tensors)),
      candidates_(auto_candidates(parse_auto(base_.codec).value().loss)),
      costs_(std::move(costs)) {}

// Momentum may be in the memory of every codec, fp32 included, while what stays dense has no
// memory.
std::vector<ExchangeOptions> settings_to_measure(const ExchangeOptions& base,
                                                 const std::vector<TensorSpec>& tensors) {
  std::vector<ExchangeOptions> all;
  for (const std::string& codec : auto_candidates(parse_auto(base.codec).value().loss)) {
    all.push_back(decided_options(base, {.step = 0, .codec = codec, .why = {}}));
    all.back().rules.clear();
  }
  ExchangeOptions dense = all.front();
  const std::vector<ExchangeOptions> settings = settings_of(base);
  all.insert(all.end(), settings.begin() + 1, settings.end());
  dense.feedback = "auto";
  const auto stays_dense = [&](const TensorSpec& tensor) {
    return std::find(base.dense_kinds.begin(), base.dense_kinds.end(), tensor.kind) !=
           base.dense_kinds.end();
  };
  if (std::any_of(tensors.begin(), tensors.end(), stays_dense)) all.push_back(std::move(dense));
  return all;
}

// A candidate that does not go with the caller's memory is left out by expected, too.
void AutoChoice::measure(const ExchangeOptions& setting) {
  if (check_exchange(setting)) costs_.of(setting);
}

Result<StepPrediction> AutoChoice::play(const Situation& now, const AutoDecision& decision) {
  ExchangeOptions options = decided_options(base_, decision);
  options.weighted = false;
  return predict_step(now.timeline, options, now.request, costs_);
}

double AutoChoice::predicted(const Situation& now, const AutoDecision& decision) {
  auto step = play(now, decision);
  return step ? step.value().seconds : std::numeric_limits<double>::infinity();
}

double AutoChoice::expected(const Situation& now, const AutoDecision& decision) {
  const TriedDecisions::Tried* known = tried_.find(decision);
  if (known == nullptr) return predicted(now, decision) * tried_.worst_factor();
  return predicted({.timeline = known->timeline, .request = now.request}, decision) * known->factor;
}

void AutoChoice::learn(const Situation& now, const AutoDecision& decision, double seconds,
                       bool of_start) {
  const double factor = std::clamp(seconds / predicted(now, decision), 0.1, 10.0);
  tried_.learn(decision, now.timeline, factor, of_start);
  codecs_tried_.insert(decision.codec);
}

void AutoChoice::forget() {
  tried_.forget();
  codecs_tried_.clear();
}

bool AutoChoice::was_tried(const AutoDecision& decision) const {
  return tried_.find(decision) != nullptr;
}

// Whether a codec that most tensors did not have yet would be the fastest of all if its
// communication took only a part of what is predicted, and computation got back the time for which
// the messages of what holds delay it.
bool AutoChoice::promises(const Situation& now, const StepPrediction& held,
                          const AutoDecision& other, const StepPrediction& step,
                          double least) const {
  if (codecs_tried_.contains(other.codec)) return false;
  // The bytes alone would take as long as the fastest step. Those of sparse codecs depend on the
  // gradients.
  if (loss_of(other) != AllowedLoss::kAny && kSurelyOnTheWire * step.wire_seconds >= least)
    return false;
  const double taken = now.request.own_core ? 0 : kTakenByMessages * held.wire_seconds;
  const double given_back = std::max(0.0, taken - kTakenByMessages * step.wire_seconds);
  const double compute = now.timeline.compute_seconds;
  const double at_best =
      tried_.least_factor() * (compute - given_back + kSurelyNeeded * (step.seconds - compute));
  return kWorthATrial * at_best < least;
}

// Whether it would be the fastest of all if predictions were as wrong as they may be. The luckiest
// codec so far is as far from a common error of all predictions as any may be, or less.
bool AutoChoice::is_close(const AutoDecision& other, const StepPrediction& step,
                          double least) const {
  if (was_tried(other) || loss_of(other) != AllowedLoss::kAny) return false;
  const double factor = tried_.least_factor();
  const double at_best =
      std::clamp(1 - kError, factor * (1 - kError) / (1 + kError), factor) * step.seconds;
  return kWorthATrial * at_best < least;
}

// A codec that loses more than what holds must promise something. Those that round differ by their
// bytes, and little else. The four that need a memory take between 0.73 and 1.35 times what is
// predicted of them in docs/results/plan.md.
std::optional<AutoDecision> AutoChoice::worth_trying(const Situation& now,
                                                     const AutoDecision& current) {
  Result<StepPrediction> held = play(now, current);
  if (!held) return std::nullopt;
  std::optional<AutoDecision> found;
  const bool may_be_close = loss_of(current) == AllowedLoss::kAny;
  const double least = expected(now, best(now));
  double soonest = std::numeric_limits<double>::infinity();
  for (const std::string& codec : candidates_) {
    const AutoDecision other{.step = 0, .codec = codec, .why = {}};
    Result<StepPrediction> step = play(now, other);
    if (!step || step.value().seconds >= soonest) continue;
    if (!promises(now, held.value(), other, step.value(), least) &&
        !(may_be_close && is_close(other, step.value(), least)))
      continue;
    soonest = step.value().seconds;
    found = other;
  }
  return found;
}

std::optional<AutoDecision> AutoChoice::dense_again(const Situation& now,
                                                    const AutoDecision& current) {
  AutoDecision dense{.step = 0, .codec = "fp32", .why = {}};
  if (current.codec == dense.codec && current.others.empty()) return std::nullopt;
  const TriedDecisions::Tried* known = tried_.find(dense);
  if (known == nullptr || !known->of_start) return std::nullopt;
  if (predicted(now, dense) > kAlike * predicted(now, current)) return std::nullopt;
  return dense;
}

bool AutoChoice::is_free(const TensorSpec& tensor) const {
  const auto& dense = base_.dense_kinds;
  if (std::find(dense.begin(), dense.end(), tensor.kind) != dense.end()) return false;
  return std::none_of(base_.rules.begin(), base_.rules.end(), [&](const TensorRule& rule) {
    return fits_pattern(tensor.name, rule.pattern);
  });
}

void AutoChoice::refine(const Situation& now, AutoDecision& best) {
  double least = expected(now, best);
  size_t begin = 0;
  for (const size_t end : kClassEnds) {
    std::vector<std::string> names;
    size_t others = 0;
    for (const TensorSpec& tensor : tensors_) {
      if (!is_free(tensor)) continue;
      tensor.count() >= begin&& tensor.count() < end ? names.push_back(tensor.name)
                                                     : void(++others);
    }
    begin = end;
    if (names.empty() || others == 0) continue;
    const AutoDecision before = best;
    for (const std::string& codec : candidates_) {
      if (codec == before.codec) continue;
      AutoDecision other = before;
      for (const std::string& name : names) other.others.emplace_back(name, codec);
      const double seconds = expected(now, other);
      if (kWorthAnException * seconds >= least) continue;
      least = seconds;
      best = std::move(other);
    }
  }
}

AutoDecision AutoChoice::best(const Situation& now) {
  AutoDecision best{.step = 0, .codec = candidates_.front(), .why = {}};
  double least = expected(now, best);
  for (const std::string& codec : candidates_) {
    const AutoDecision other{.step = 0, .codec = codec, .why = {}};
    const double seconds = expected(now, other);
    if (kWorthMoreLoss * seconds >= least) continue;
    least = seconds;
    best = other;
  }
  refine(now, best);
  return best;
}

}  // namespace thinwire
