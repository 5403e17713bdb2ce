// TriedDecisions: factors and timelines are means over the windows of a decision, later ones count
// more.
// SPDX-License-Identifier: Apache-2.0
#include "plan/tried_decisions.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace thinwire {
namespace {

void scale(StepTimeline& timeline, double by) {
  for (double& seconds : timeline.ready_seconds) seconds *= by;
  timeline.backward_seconds *= by;
  timeline.compute_seconds *= by;
}

// Of the same tensors.
StepTimeline mean_of(StepTimeline a, const StepTimeline& b) {
  const auto middle = [](double one, double other) { return (one + other) / 2; };
  for (size_t i = 0; i < a.ready_seconds.size(); ++i)
    a.ready_seconds[i] = middle(a.ready_seconds[i], b.ready_seconds[i]);
  a.backward_seconds = middle(a.backward_seconds, b.backward_seconds);
  a.compute_seconds = middle(a.compute_seconds, b.compute_seconds);
  return a;
}

// What a decision decides, without when and why.
std::string key_of(AutoDecision decision) {
  decision.step = 0;
  decision.why.clear();
  return to_text({decision});
}

}  // namespace

void TriedDecisions::learn(const AutoDecision& decision, const StepTimeline& timeline,
                           double factor, bool of_start) {
  const std::string key = key_of(decision);
  const bool held = std::exchange(latest_, key) == key;
  Tried seen{.timeline = timeline, .factor = factor, .of_start = of_start};
  const auto [at, is_first] = all_.try_emplace(key, seen);
  if (is_first) return;
  Tried& known = at->second;
  if (known.of_start) {
    known = std::move(seen);
    return;
  }
  known.factor = (known.factor + factor) / 2;  // a window may be lucky
  if (!held) {
    known.timeline = mean_of(std::move(known.timeline), timeline);
    return;
  }
  const double by = timeline.compute_seconds / known.timeline.compute_seconds;
  known.timeline = timeline;
  if (!std::isfinite(by) || by <= 0) return;
  for (auto& [other, tried] : all_)
    if (other != key) scale(tried.timeline, by);
}

const TriedDecisions::Tried* TriedDecisions::find(const AutoDecision& decision) const {
  const auto known = all_.find(key_of(decision));
  return known == all_.end() ? nullptr : &known->second;
}

double TriedDecisions::worst_factor() const {
  double worst = 0;
  for (const auto& [key, tried] : all_) worst = std::max(worst, tried.factor);
  return worst > 0 ? worst : 1;
}

double TriedDecisions::least_factor() const {
  if (all_.empty()) return 1;
  return std::min_element(
             all_.begin(), all_.end(),
             [](const auto& a, const auto& b) { return a.second.factor < b.second.factor; })
      ->second.factor;
}

}  // namespace thinwire
