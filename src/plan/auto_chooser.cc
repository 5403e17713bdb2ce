// AutoChooser: rank 0 decides by what all ranks measured, and tells the others.
// SPDX-License-Identifier: Apache-2.0
#include "plan/auto_chooser.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

#include "core/machine.h"
#include "plan/auto_reason.h"
#include "plan/find_link.h"

namespace thinwire {
namespace {

constexpr size_t kFirstSteps = 3, kSteps = 10, kUnsteady = 2;
// After a change: as many steps as took 0.3 s before it. Where steps are short, their times spread
// by 15 %, and the median of six by 8 %.
constexpr double kStepsOfATrial = 6, kMostStepsOfATrial = 30;
constexpr double kSecondsOfATrial = 0.3;
// Of steps, for trials, beside those with which each candidate is tried once.
constexpr uint64_t kShareOfTrials = 10;
constexpr double kFirstProbe = 0.5;  // seconds
// From here on steps that are measured first would take too long.
constexpr double kLongStep = 0.1;
constexpr double kOther = 1.6;     // times: other conditions, under which nothing was tried yet
constexpr double kNothing = 1e-3;  // seconds of communication that no decision depends on

double steady_clock() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

size_t steps_of_trial(double step) {
  return static_cast<size_t>(
      std::clamp(std::ceil(kSecondsOfATrial / step), kStepsOfATrial, kMostStepsOfATrial));
}

// What a probe says of a rate that it had too little time to find is no reason to think that the
// link got slower.
LinkSpec renewed(const std::optional<LinkSpec>& known, const ProbedLink& found) {
  LinkSpec link = found;
  if (known && found.at_least)
    link.bits_per_second =
        known->bits_per_second == 0 ? 0 : std::max(known->bits_per_second, found.bits_per_second);
  return link;
}

// Codecs of another plan are allowed where anything may be lost.
bool may_go_on(const AutoDecision& resumed, int ranks, const ExchangeOptions& base) {
  const AllowedLoss loss = ranks == 1 ? AllowedLoss::kNone : parse_auto(base.codec).value().loss;
  if (loss == AllowedLoss::kAny) return true;
  const std::vector<std::string> allowed = auto_candidates(loss);
  const auto is_allowed = [&](const std::string& codec) {
    return std::find(allowed.begin(), allowed.end(), codec) != allowed.end();
  };
  return is_allowed(resumed.codec) &&
         std::all_of(resumed.others.begin(), resumed.others.end(),
                     [&](const auto& other) { return is_allowed(other.second); });
}

bool far_apart(double a, double b) { return std::max(a, b) > kOther * std::min(a, b); }

}  // namespace

AutoChooser::AutoChooser(Group& group, const ExchangeOptions& base, std::vector<TensorSpec> tensors,
                         AutoSources sources)
    : watch(tensors.size()),
      base_(base),
      tensors_(std::move(tensors)),
      sources_(std::move(sources)),
      link_(group) {
  if (!sources_.clock) sources_.clock = steady_clock;
  if (!sources_.probe) sources_.probe = probe_link;
  const std::string path = parse_auto(base_.codec).value().plan;
  if (!path.empty()) plan_ = read_plan(link_, base_, tensors_, path);
  watch.restart(kFirstSteps, kUnsteady);
}

// One at a time, so that no rank waits longer than one takes.
void AutoChooser::measure_codecs() {
  together(link_.channel(), [&] {
    if (!link_.first()) return;
    CostTable costs;
    if (sources_.costs)
      costs = *sources_.costs;
    else if (Result<CostTable> kept = read_costs(usual_cost_file()))
      costs = std::move(kept.value());
    choice_ = std::make_unique<AutoChoice>(base_, tensors_, std::move(costs));
  });
  const size_t known = choice_ ? choice_->costs().size() : 0;
  for (const ExchangeOptions& setting : settings_to_measure(base_, tensors_))
    together(link_.channel(), [&] {
      if (choice_) choice_->measure(setting);
    });
  if (choice_ && !sources_.costs && choice_->costs().size() > known && !usual_cost_file().empty())
    (void)write_costs(usual_cost_file(), choice_->costs());  // else they are measured again
}

void AutoChooser::probe(double seconds) {
  const ProbedLink found = sources_.probe(link_.channel(), seconds, speed_);
  speed_ = renewed(speed_, found);
  judge_.probed(next_probe_seconds(link_.size(), *speed_, found));
}

Situation AutoChooser::situation(const WatchedStep& steps) const {
  Situation now{
      .timeline = {.tensors = tensors_, .ready_seconds = steps.ready},
      .request = {.ranks = link_.size(), .link = *speed_, .own_core = available_cores() > 2}};
  for (const double seconds : steps.ready)
    now.timeline.backward_seconds = std::max(now.timeline.backward_seconds, seconds);
  now.timeline.compute_seconds = now.timeline.backward_seconds;
  return now;
}

std::string AutoChooser::reason(const Situation& now, const AutoDecision& decision) const {
  const double dense = choice_->expected(now, {.step = 0, .codec = "fp32", .why = {}});
  return reason_text(name_of(decision, tensors_.size()), choice_->expected(now, decision), dense,
                     *speed_, now.timeline.compute_seconds);
}

AutoDecision AutoChooser::begin(uint64_t step, const std::vector<AutoDecision>& resumed) {
  if (plan_) {
    plan_->check_followed(resumed, step).or_throw();
    return resumed.empty() ? plan_->begin(step) : resumed.back();
  }
  AutoDecision first{.step = step, .codec = "fp32", .why = "fp32: a single rank sends nothing"};
  if (link_.size() > 1) {
    const double before = clock();
    measure_codecs();
    probe(kFirstProbe);
    const std::string spent = "; calibrated and probed in " + time_text(clock() - before);
    std::string text;
    together(link_.channel(), [&] {
      if (!choice_) return;
      const Situation idle = situation({.step = 0, .ready = std::vector<double>(tensors_.size())});
      const double dense = choice_->expected(idle, first);
      if (dense > kLongStep) {
        first = choice_->best(idle);
        first.why = reason(idle, first) + "; before any step was measured" + spent;
      } else {
        first.why = "fp32: until steps are measured; link " + link_text(*speed_) + spent;
      }
      first.step = step;
      text = to_text({first});
    });
    first = decisions_from(link_.of_first(std::move(text))).value().front();
  }
  if (resumed.empty()) return first;
  if (may_go_on(resumed.back(), link_.size(), base_)) return resumed.back();
  if (link_.size() > 1)
    first.why += "; " + name_of(resumed.back(), tensors_.size()) + " loses more than " +
                 base_.codec + " allows";
  return first;
}

// What a codec does to the arithmetic beside it is no other condition, so predictions of the step
// with what holds are compared while it holds, and of what fp32 adds to the arithmetic at all
// times.
void AutoChooser::forget_other_conditions(const Situation& there, const AutoDecision& now) {
  const double dense = choice_->predicted(there, {.step = 0, .codec = "fp32", .why = {}}) -
                       there.timeline.compute_seconds;
  const double step = choice_->predicted(there, now);
  if ((dense_ && far_apart(*dense_ + kNothing, dense + kNothing)) ||
      (step_ && far_apart(*step_, step)))
    choice_->forget();
  dense_ = dense;
  step_ = step;
}

// On rank 0: the text of what is to hold; empty if that is what holds now. What promises enough is
// tried first, then what might do better than is predicted. In the end what took least time stays.
std::string AutoChooser::decide(const WatchedStep& steps, const AutoDecision& now) {
  const Situation there = situation(steps);
  forget_other_conditions(there, now);
  choice_->learn(there, now, steps.step, steps_ <= kFirstSteps);
  AutoDecision next = choice_->best(there);
  const auto is_now = [&] { return same_codecs(next, now); };
  const auto is_dense = [](const AutoDecision& one) {
    return one.codec == "fp32" && one.others.empty();
  };
  const bool tried = choice_->was_tried(next);
  bool change = !is_now() && needed_gain(is_dense(now), is_dense(next), tried) *
                                     choice_->expected(there, next) <=
                                 choice_->expected(there, now);
  const char* aim = "";
  const uint64_t once = auto_candidates(parse_auto(base_.codec).value().loss).size();
  const uint64_t steps_of_one = steps_of_trial(steps.step) + kUnsteady;
  const bool may_try = trials_ < once + steps_ / (kShareOfTrials * steps_of_one);
  if (may_try && (!change || tried))
    if (std::optional<AutoDecision> trial = choice_->worth_trying(there, now)) {
      next = std::move(*trial);
      change = true;
      aim = "; a trial";
      ++trials_;
    }
  if (!change && may_try)
    if (std::optional<AutoDecision> dense = choice_->dense_again(there, now)) {
      next = std::move(*dense);
      change = true;
      aim = "; a trial, since it was measured in the first steps alone";
      ++trials_;
    }
  if (!change) return {};
  next.step = now.step + 1;  // not yet known here
  next.why = reason(there, next) + aim + "; " + name_of(now, tensors_.size()) + " took " +
             time_text(steps.step);
  return to_text({next});
}

std::optional<double> AutoChooser::look(const WatchedStep& steps) {
  const double compute =
      steps.ready.empty() ? 0 : *std::max_element(steps.ready.begin(), steps.ready.end());
  double seconds = -1;  // nothing
  if (link_.first()) {
    judge_.passed(static_cast<double>(watch.size()) * steps.step);
    steps_ += watch.size();
    const AutoJudge::Wish wanted = judge_.look(steps.step, compute);
    if (wanted == AutoJudge::Wish::kPlan) seconds = 0;
    if (wanted == AutoJudge::Wish::kProbe) seconds = judge_.probe_seconds();
  }
  seconds = link_.of_first(seconds);
  return seconds < 0 ? std::nullopt : std::optional(seconds);
}

std::optional<AutoDecision> AutoChooser::next(uint64_t step, const AutoDecision& now) {
  if (plan_) return plan_->next(step, now);
  if (link_.size() == 1 || !watch.is_full()) return std::nullopt;
  const WatchedStep steps = link_.latest(watch.medians());
  const std::optional<double> probed = look(steps);
  watch.restart(kSteps, 0);
  if (!probed) return std::nullopt;
  if (*probed > 0) {
    probe(*probed);
    watch.restart(kSteps, 1);  // the step with the probe
  }
  std::string text;
  together(link_.channel(), [&] {
    if (choice_) text = decide(steps, now);
  });
  text = link_.of_first(std::move(text));
  if (text.empty()) return std::nullopt;
  AutoDecision next = decisions_from(text).value().front();
  next.step = step;
  judge_.changed();
  step_.reset();
  watch.restart(link_.of_first(steps_of_trial(steps.step)),
                kUnsteady);  // rank 0 knows all ranks' times
  return next;
}

}  // namespace thinwire
