// AutoChooser: rank 0 decides by what all ranks measured, and tells the others.
// SPDX-License-Identifier: Apache-2.0
#include "plan/auto_chooser.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <utility>

#include "core/machine.h"

namespace thinwire {
namespace {

constexpr size_t kFirstSteps = 3, kSteps = 10, kUnsteady = 2;
constexpr double kFirstProbe = 0.5;  // seconds
// From here on steps that are measured first would take too long.
constexpr double kLongStep = 0.1;
constexpr double kOther = 1.3;  // times: other conditions, under which nothing was tried yet

double steady_clock() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
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
    for (const AutoDecision& one : decisions.value())
      if (const Status fits = check_decision(one); !fits)
        throw Error(fits.code(), "codec 'auto': plan " + path + ": step " +
                                     std::to_string(one.step) + ": " + fits.message());
  });
  plan_ = decisions_from(link_.of_first(std::move(text))).value();
}

// A plan that cannot be followed to its end is refused before the first step.
Status AutoChooser::check_decision(const AutoDecision& decision) const {
  const auto refuse = [](const std::string& why) {
    return Status::fail(ErrorCode::kBadOption, why);
  };
  if (is_auto(decision.codec)) return refuse("'" + decision.codec + "' decides nothing");
  for (const auto& [name, codec] : decision.others) {
    if (is_auto(codec)) return refuse("'" + codec + "' decides nothing");
    if (std::none_of(tensors_.begin(), tensors_.end(),
                     [&](const TensorSpec& tensor) { return tensor.name == name; }))
      return refuse("there is no tensor '" + name + "'");
  }
  return check_exchange(decided_options(base_, decision));
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
  const size_t count = auto_candidates(parse_auto(base_.codec).value().loss).size();
  for (size_t i = 0; i < count; ++i)
    together(link_.channel(), [&] {
      if (choice_) choice_->measure(i);
    });
  if (choice_ && !sources_.costs && choice_->costs().size() > known && !usual_cost_file().empty())
    (void)write_costs(usual_cost_file(), choice_->costs());  // else they are measured again
}

void AutoChooser::probe(double seconds) {
  const LinkSpec before = speed_;
  speed_ = sources_.probe(link_.channel(), seconds);
  judge_.probed();
  if (choice_ && (far_apart(before.bits_per_second, speed_.bits_per_second) ||
                  far_apart(before.latency_seconds + 1e-4, speed_.latency_seconds + 1e-4)))
    choice_->forget();
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

// On rank 0: the text of what is to hold; empty if that is what holds now.
std::string AutoChooser::decide(const WatchedStep& steps, const AutoDecision& now) {
  const Situation there = situation(steps);
  if (far_apart(there.timeline.compute_seconds, compute_)) choice_->forget();
  compute_ = there.timeline.compute_seconds;
  choice_->learn(there, now, steps.step);
  AutoDecision next = choice_->best(there);
  if (next.codec == now.codec && next.others == now.others) return {};
  const bool to_dense = next.codec == "fp32" && next.others.empty();
  if (needed_gain(to_dense) * choice_->expected(there, next) > steps.step) return {};
  next.step = now.step + 1;  // not yet known here
  next.why =
      reason(there, next) + "; " + name_of(now, tensors_.size()) + " took " + time_text(steps.step);
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
    judge_.passed(static_cast<double>(kSteps) * steps.step);
    const AutoJudge::Wish wanted = judge_.look(steps.step, compute);
    if (wanted == AutoJudge::Wish::kPlan) wish = "plan";
    if (wanted == AutoJudge::Wish::kProbe) wish = std::to_string(judge_.probe_seconds());
  }
  watch.restart(kSteps, 0);
  wish = link_.of_first(std::move(wish));
  if (wish == "-") return std::nullopt;
  if (wish != "plan") {
    probe(std::stod(wish));
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
  watch.restart(kSteps, kUnsteady);
  return next;
}

}  // namespace thinwire
