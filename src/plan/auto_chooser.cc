// AutoChooser: rank 0 decides by what all ranks measured, and tells the others.
// SPDX-License-Identifier: Apache-2.0
#include "plan/auto_chooser.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <string_view>
#include <utility>

#include "core/machine.h"
#include "core/number_text.h"
#include "exchange/engine/codec_change.h"

namespace thinwire {
namespace {

constexpr size_t kFirstSteps = 3, kSteps = 10, kUnsteady = 2;
// After a change: as many steps as took 0.3 s before it. Where steps are short, their times spread by 15 %, and the median of six
// by 8 %.
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

bool far_apart(double a, double b) { return std::max(a, b) > kOther * std::min(a, b); }

// Three digits: "12.3 ms", "1.2 s", "971 Mbit/s".
std::string in_units(double number, double unit, const char* small, const char* large) {
  char text[48];
  const bool is_large = number >= 1000 * unit;
  std::snprintf(text, sizeof text, "%.3g %s", number / (is_large ? 1000 * unit : unit),
                is_large ? large : small);
  return text;
}

std::string time_text(double seconds) { return in_units(seconds, 1e-3, "ms", "s"); }

// Of what `shortest` wrote. Whatever locale a rank has, it reads the same number, and all probe for as long.
double number_in(std::string_view text) {
  double number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

std::string link_text(const LinkSpec& link) {
  const std::string rate = link.bits_per_second == 0
                               ? "no limit"
                               : in_units(link.bits_per_second, 1e6, "Mbit/s", "Gbit/s");
  return rate + ", " + time_text(link.latency_seconds);
}

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
  if (!path.empty()) read_plan(path);
  watch.restart(kFirstSteps, kUnsteady);
}

void AutoChooser::read_plan(const std::string& path) {
  std::string text;
  together(link_.channel(), [&] {
    if (!link_.first()) return;
    std::error_code absent;
    std::ifstream file(path, std::ios::binary);
    if (!std::filesystem::is_regular_file(path, absent)) file.setstate(std::ios::failbit);
    if (file) text.assign(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
    if (!file) throw Error(ErrorCode::kIo, "codec 'auto': plan " + path + ": cannot be read");
    auto decisions = decisions_from(text);
    if (!decisions)
      throw Error(decisions.status().code(),
                  "codec 'auto': plan " + path + ": " + decisions.status().message());
    const std::string_view recorded = recorded_loss(text),
                           given = to_string(parse_auto(base_.codec).value().loss);
    if (!recorded.empty() && recorded != given)
      throw Error(
          ErrorCode::kBadOption,
          "codec 'auto': plan " + path + " was recorded with loss=" + std::string(recorded) +
              ", and loss=" + std::string(given) +
              " holds here: memories would be others; write auto:loss=" + std::string(recorded) +
              ",plan=" + path);
    if (const Status can = check_plan(decisions.value()); !can)
      throw Error(can.code(), "codec 'auto': plan " + path + ": " + can.message());
  });
  plan_ = decisions_from(link_.of_first(std::move(text))).value();
}

// A plan that cannot be followed to its end is refused before the first step. It is followed here from its first decision on, as the
// exchange does it, as though owners owed something of every section: a memory that holds what is owed stays, and not every
// codec goes with it.
Status AutoChooser::check_plan(const std::vector<AutoDecision>& decisions) const {
  std::optional<ExchangeOptions> now;
  Sections sections;
  for (const AutoDecision& decision : decisions) {
    const auto refuse = [&](const Status& status) {
      return Status::fail(status.code(),
                          "step " + std::to_string(decision.step) + ": " + status.message());
    };
    if (const Status fits = check_decision(decision); !fits) return refuse(fits);
    ExchangeOptions asked = decided_options(base_, decision);
    if (now) {
      const std::vector<bool> owes(sections.used.size(), true);
      auto changed = changed_options(*now, sections, owes, asked, tensors_, decision.step);
      if (!changed) return refuse(changed.status());
      asked = std::move(changed.value());
    }
    Result<Sections> resolved = resolve_sections(asked, tensors_, decision.step);
    if (!resolved) return refuse(resolved.status());
    sections = std::move(resolved.value());
    now = std::move(asked);
  }
  return Status::ok();
}

// What can be wrong with a decision whatever came before it. The sums of a library may have other bits each time, so that a run with
// them could not be repeated.
Status AutoChooser::check_decision(const AutoDecision& decision) const {
  const auto refuse = [](const std::string& why) {
    return Status::fail(ErrorCode::kBadOption, why);
  };
  std::vector<std::string> codecs = {decision.codec};
  std::set<std::string_view> named;
  for (const auto& [name, codec] : decision.others) {
    codecs.push_back(codec);
    if (!named.insert(name).second) return refuse("tensor '" + name + "' has two codecs");
    if (std::none_of(tensors_.begin(), tensors_.end(),
                     [&](const TensorSpec& tensor) { return tensor.name == name; }))
      return refuse("there is no tensor '" + name + "'");
  }
  for (const std::string& codec : codecs) {
    if (is_auto(codec)) return refuse("'" + codec + "' decides nothing");
    if (codec.ends_with(" @ library"))
      return refuse("'" + codec + "': auto has no method library; choose another, or none");
  }
  return Status::ok();
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
  speed_ = sources_.probe(link_.channel(), seconds);
  judge_.probed();
}

Situation AutoChooser::situation(const WatchedStep& steps) const {
  Situation now{
      .timeline = {.tensors = tensors_, .ready_seconds = steps.ready},
      .request = {.ranks = link_.size(), .link = speed_, .own_core = available_cores() > 2}};
  for (const double seconds : steps.ready)
    now.timeline.backward_seconds = std::max(now.timeline.backward_seconds, seconds);
  now.timeline.compute_seconds = now.timeline.backward_seconds;
  return now;
}

std::string AutoChooser::reason(const Situation& now, const AutoDecision& decision) const {
  const double dense = choice_->expected(now, {.step = 0, .codec = "fp32", .why = {}});
  const double seconds = choice_->expected(now, decision);
  char times[32];
  std::snprintf(times, sizeof times, "%.2f", dense / seconds);
  std::string text = name_of(decision, tensors_.size()) + ": expected " + time_text(seconds) +
                     " per step, " + times + "x as fast as fp32; link " + link_text(speed_);
  if (now.timeline.compute_seconds > 0)
    text += "; computation " + time_text(now.timeline.compute_seconds);
  return text;
}

AutoDecision AutoChooser::begin(uint64_t step, const AutoDecision* resumed) {
  if (!plan_.empty()) {
    if (resumed != nullptr) return *resumed;
    AutoDecision first = plan_.front();
    for (const AutoDecision& one : plan_)
      if (one.step <= step) first = one;
    first.step = step;
    return first;
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
        first.why = "fp32: until steps are measured; link " + link_text(speed_) + spent;
      }
      first.step = step;
      text = to_text({first});
    });
    first = decisions_from(link_.of_first(std::move(text))).value().front();
  }
  return resumed != nullptr ? *resumed : first;
}

// What a codec does to the arithmetic beside it is no other condition, so predictions of the step with what holds are compared
// while it holds, and of what fp32 adds to the arithmetic at all times.
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

// On rank 0: the text of what is to hold; empty if that is what holds now. What promises enough is tried first, then what
// might do better than is predicted. In the end what took least time stays.
std::string AutoChooser::decide(const WatchedStep& steps, const AutoDecision& now) {
  const Situation there = situation(steps);
  forget_other_conditions(there, now);
  choice_->learn(there, now, steps.step);
  AutoDecision next = choice_->best(there);
  const auto is_now = [&] { return next.codec == now.codec && next.others == now.others; };
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
  if (!change) return {};
  next.step = now.step + 1;  // not yet known here
  next.why = reason(there, next) + aim + "; " + name_of(now, tensors_.size()) + " took " +
             time_text(steps.step);
  return to_text({next});
}

std::optional<AutoDecision> AutoChooser::next(uint64_t step, const AutoDecision& now) {
  if (!plan_.empty()) {
    std::optional<AutoDecision> due;
    for (const AutoDecision& one : plan_)
      if (one.step <= step && one.step > now.step) due = one;
    if (due) due->step = step;
    return due;
  }
  if (link_.size() == 1 || !watch.is_full()) return std::nullopt;
  const WatchedStep steps = link_.latest(watch.medians());
  const double compute =
      steps.ready.empty() ? 0 : *std::max_element(steps.ready.begin(), steps.ready.end());
  std::string wish = "-";
  if (link_.first()) {
    judge_.passed(static_cast<double>(watch.size()) * steps.step);
    steps_ += watch.size();
    const AutoJudge::Wish wanted = judge_.look(steps.step, compute);
    if (wanted == AutoJudge::Wish::kPlan) wish = "plan";
    if (wanted == AutoJudge::Wish::kProbe) wish = shortest(judge_.probe_seconds());
  }
  watch.restart(kSteps, 0);
  wish = link_.of_first(std::move(wish));
  if (wish == "-") return std::nullopt;
  if (wish != "plan") {
    probe(number_in(wish));
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
  watch.restart(std::stoul(link_.of_first(std::to_string(steps_of_trial(steps.step)))), kUnsteady);
  return next;
}

}  // namespace thinwire
