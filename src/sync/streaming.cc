// streaming: DiLoCo by fragments that are synchronised in turn, while workers step on [Streaming
// DiLoCo: Douillard et al., arXiv 2501.18512].
//
// The layers are cut into P fragments. With o_p = (p + 1) tau / P, rounded down, fragment p of a =
// the anchor, v = its velocity and x_i = worker i's parameters:
//   after o_p, o_p + tau, ... steps:    m = mean of all x, on its way in the background
//   `delay` steps after each of these:  g = a - m,   v <- momentum v + g,
//                                       a <- a - rate (g + momentum v),
//                                       x_i <- mix x_i + (1 - mix) a
// With one fragment, delay 0 and mix 0 it is `diloco`, bit for bit.
//
// A lossy codec carries x - a. Each fragment has an exchange of its own, with a thread of its own.
// 4 bytes per value beside those of `diloco` if rounds are delayed.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "kernel/memory_passes.h"
#include "sync/fragment_cut.h"
#include "sync/fragment_round.h"
#include "sync/fragments.h"
#include "sync/outer_sgd.h"
#include "sync/part_store.h"

namespace thinwire {
namespace {

constexpr const char* kFeedback = "residual";  // of lossy codecs

struct StreamingRule {
  uint64_t period = 1;
  uint64_t delay = 0;
  float mix = 0;
  OuterStep outer;
  std::vector<std::vector<size_t>> fragments;
};

class Streaming final : public SyncRule {
 public:
  Streaming(const SyncSetup& setup, const StreamingRule& rule)
      : Streaming(setup, rule, plan_momentum(setup.options, rule.outer, kFeedback)) {}

  ~Streaming() override { store().before_save(this, nullptr); }

 private:
  Streaming(const SyncSetup& setup, const StreamingRule& rule, MomentumPlan momentum)
      : SyncRule(
            setup, "streaming", vectors_of(setup, rule, step_on_mean(rule.outer, momentum)),
            {{"rounds", std::vector<double>(rule.fragments.size() * FragmentRound::kNumbers)}}),
        rule_(rule),
        momentum_(std::move(momentum)),
        outer_(step_on_mean(rule_.outer, momentum_)),
        lossless_(is_lossless(setup.options.codec) && !momentum_.in_memory),
        anchor_(memory().vector("anchor")),
        velocity_(memory().vector("velocity")) {
    const std::span<double> numbers = memory().numbers("rounds");
    for (size_t p = 0; p < rule_.fragments.size(); ++p)
      rounds_.emplace_back(FragmentRound::Place{
          .tensors = tensors(),
          .own = rule_.fragments[p],
          .arrived = memory().vector("arrived"),
          .numbers = numbers.subspan(p * FragmentRound::kNumbers, FragmentRound::kNumbers)});
    for (size_t p = 0; p < rounds_.size(); ++p) check_saved(p);
  }

  static std::vector<SyncMemory::Vector> vectors_of(const SyncSetup& setup,
                                                    const StreamingRule& rule,
                                                    const OuterStep& outer) {
    const size_t count = setup.start.size();
    return {{"anchor", copy_of(setup.start)},
            {"velocity", AlignedVector<float>(outer.momentum != 0 ? count : 0)},
            {"arrived", AlignedVector<float>(rule.delay > 0 ? count : 0)}};
  }

  // Local steps before the first round of a fragment.
  uint64_t first(size_t p) const {
    const uint64_t count = rounds_.size();  // periods may be as long as 2^53 steps
    return rule_.period / count * (p + 1) + rule_.period % count * (p + 1) / count;
  }

  bool begins(size_t p, uint64_t step) const {
    return step >= first(p) && (step - first(p)) % rule_.period == 0;
  }

  // A run that goes on with other times would wait for a round that is not under way, or forget
  // one.
  void check_saved(size_t p) const {
    if (!memory().loaded()) return;
    if (!rounds_[p].numbers_make_sense())
      throw Error(ErrorCode::kMismatch, "streaming: the saved state has numbers of fragment " +
                                            std::to_string(p) + " that no round writes");
    const uint64_t now = memory().steps;
    uint64_t under_way = 0;  // since when
    if (now >= first(p)) under_way = now - (now - first(p)) % rule_.period;
    if (under_way + rule_.delay <= now) under_way = 0;
    if (rounds_[p].begun() == under_way) return;
    const auto text = [](uint64_t begun) {
      return begun == 0 ? std::string("no round") : "a round since step " + std::to_string(begun);
    };
    throw Error(ErrorCode::kMismatch,
                "streaming: the saved state, of " + std::to_string(now) + " steps, has " +
                    text(rounds_[p].begun()) + " of fragment " + std::to_string(p) +
                    " under way, and with these options there is " + text(under_way) +
                    "; tau and delay may change where none is under way, delay not from 0 or to 0");
  }

  std::string shared_memory() const override { return std::to_string(memory().checksum()); }

  void join() override {
    SynchroniserOptions settled = options();
    if (momentum_.in_memory) settled.feedback = momentum_.feedback;
    for (size_t p = 0; p < rounds_.size(); ++p) {
      // Streams of different fragments may have the same name, and have the same numbers.
      auto& memories = store().open<PartStore>("sync/streaming/fragment " + std::to_string(p),
                                               [] { return std::make_unique<PartStore>(); });
      rounds_[p].connect(channel(), memories.store(), settled, kFeedback);
      ++settled.seed;
    }
    store().before_save(this, [this] {
      for (FragmentRound& round : rounds_) round.await();
    });
  }

  // One fragment begins at most, and one ends: fragments are as many as steps of the period, or
  // fewer. One that begins is on its way before this worker waits for one that ends.
  std::optional<RoundReport> step(std::span<float> parameters, double /*loss*/) override {
    const uint64_t now = memory().steps;
    for (size_t p = 0; p < rounds_.size(); ++p)
      if (begins(p, now))
        rounds_[p].begin(parameters, lossless_ ? std::span<const float>() : anchor_, now);
    for (size_t p = 0; p < rounds_.size(); ++p)
      if (const uint64_t begun = rounds_[p].begun(); begun != 0 && begun + rule_.delay == now)
        return end(p, parameters);
    return std::nullopt;
  }

  RoundReport end(size_t p, std::span<float> parameters) {
    RoundReport report = rounds_[p].take([&](size_t at, std::span<const float> mean) {
      const auto anchor = std::span(anchor_).subspan(at, mean.size());
      const auto velocity =
          velocity_.empty() ? std::span<float>() : std::span(velocity_).subspan(at, mean.size());
      outer_.apply(anchor, velocity, [&](size_t i) { return anchor[i] - mean[i]; });
      const auto own = parameters.subspan(at, mean.size());
      if (rule_.mix == 0)
        std::copy(anchor.begin(), anchor.end(), own.begin());
      else
        kernel::weighted_sum(rule_.mix, own, 1 - rule_.mix, anchor, own);
    });
    report.round = memory().rounds;
    report.step = memory().steps;
    report.fragment = static_cast<int>(p);
    end_round(report);
    return report;
  }

  bool own_centre(std::span<float> out) override {
    std::copy(anchor_.begin(), anchor_.end(), out.begin());
    return true;
  }

  const StreamingRule rule_;
  const MomentumPlan momentum_;
  const OuterStep outer_;
  const bool lossless_;  // what is sent are the weights themselves
  AlignedVector<float>& anchor_;
  AlignedVector<float>& velocity_;  // empty without momentum
  std::vector<FragmentRound> rounds_;
};

constexpr uint64_t kUsual = 4;  // fragments

Status check_times(const Options& options) {
  const int64_t period = options.integer("tau"), delay = options.integer("delay"),
                fragments = options.integer("fragments");
  const auto refuse = [&](const std::string& what, const std::string& why) {
    return Status::fail(ErrorCode::kBadOption, "streaming: " + what + std::to_string(period) + why);
  };
  if (fragments > period)
    return refuse("fragments is " + std::to_string(fragments) + ", but tau is ",
                  ": two fragments would begin after one step");
  if (delay >= period)
    return refuse("delay is " + std::to_string(delay) + " and tau ",
                  ": a fragment's round must end before its next one begins; choose a delay of 0 "
                  "to " +
                      std::to_string(period - 1));
  return Status::ok();
}

uint64_t fragment_count(const Options& options, uint64_t period, uint64_t layers) {
  const auto asked = static_cast<uint64_t>(options.integer("fragments"));
  if (asked == 0) return std::max(uint64_t{1}, std::min({kUsual, period, layers}));
  if (asked > std::max(layers, uint64_t{1}))
    throw Error(ErrorCode::kBadOption, "streaming: fragments is " + std::to_string(asked) +
                                           ", but the model has " + std::to_string(layers) +
                                           " layers, of which a fragment has one or more");
  return asked;
}

std::unique_ptr<SyncRule> make_streaming(const Options& options, const SyncSetup& setup) {
  StreamingRule rule{.period = static_cast<uint64_t>(options.integer("tau")),
                     .delay = static_cast<uint64_t>(options.integer("delay")),
                     .mix = static_cast<float>(options.number("mix")),
                     .outer = {.rate = static_cast<float>(options.number("rate")),
                               .momentum = static_cast<float>(options.number("momentum"))},
                     .fragments = {}};
  const uint64_t layers = layers_of(setup.tensors).size();
  const FragmentOrder order =
      options.text("order") == "strided" ? FragmentOrder::kStrided : FragmentOrder::kSequential;
  rule.fragments =
      cut_into_fragments(setup.tensors, fragment_count(options, rule.period, layers), order);
  // Before the state of the fragments is opened, which would take that of others.
  const FragmentCut cut(setup.tensors, rule.fragments, order);
  const FragmentCut& kept = setup.store.open<FragmentCut>(
      "sync/streaming/cut", [&] { return std::make_unique<FragmentCut>(cut); });
  cut.compare(kept).or_throw();
  return std::make_unique<Streaming>(setup, rule);
}

}  // namespace

const SyncRuleEntry& streaming_entry() {
  static const SyncRuleEntry entry{
      .info =
          {.name = "streaming",
           .summary = "diloco by fragments in turn, whose rounds overlap the steps",
           .paper = "Douillard et al., 2025",
           .options = {period_row("100"),
                       {.name = "fragments",
                        .type = OptionType::kInteger,
                        .fallback = "0",
                        .min = 0,
                        .max = 4096,
                        .help = "parts of the model, of whole layers; 0: 4, or as many as there "
                                "are layers or steps of tau"},
                       {.name = "order",
                        .type = OptionType::kChoice,
                        .fallback = "strided",
                        .choices = {"strided", "sequential"},
                        .help = "layers of a fragment: every so many-th one, or neighbours"},
                       {.name = "delay",
                        .type = OptionType::kInteger,
                        .fallback = "0",
                        .min = 0,
                        .max = 0x1p53,
                        .unit = "steps",
                        .help = "local steps that a round overlaps, fewer than tau"},
                       {.name = "mix",
                        .type = OptionType::kNumber,
                        .fallback = "0",
                        .min = 0,
                        .max = 1,
                        .unit = "fraction",
                        .help = "share of a worker's own parameters that is left after a round"},
                       {.name = "rate",
                        .type = OptionType::kNumber,
                        .fallback = "0.7",
                        .min = 0,
                        .max = 10,
                        .help = "learning rate of the outer step"},
                       {.name = "momentum",
                        .type = OptionType::kNumber,
                        .fallback = "0.9",
                        .min = 0,
                        .max = 0.9999,
                        .help = "of the outer step, Nesterov's"}}},
      .make = make_streaming,
      .check = check_times,
      .momentum = true,
      .memory = [](const Options& rule, const SynchroniserOptions& options) {
        return outer_memory(options, {.momentum = static_cast<float>(rule.number("momentum"))});
      }};
  return entry;
}

}  // namespace thinwire
