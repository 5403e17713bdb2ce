// RecordedPlan: is checked to its end before the first step.
// SPDX-License-Identifier: Apache-2.0
#include "plan/recorded_plan.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <string_view>

#include "exchange/terms/codec_change.h"
#include "plan/auto_choice.h"

namespace thinwire {
namespace {

// What can be wrong with a decision whatever came before it. The sums of a library may have other
// bits each time, so that a run with them could not be repeated.
Status check_decision(const AutoDecision& decision, const std::vector<TensorSpec>& tensors) {
  const auto refuse = [](const std::string& why) {
    return Status::fail(ErrorCode::kBadOption, why);
  };
  std::vector<std::string> codecs = {decision.codec};
  std::set<std::string_view> named;
  for (const auto& [name, codec] : decision.others) {
    codecs.push_back(codec);
    if (!named.insert(name).second) return refuse("tensor '" + name + "' has two codecs");
    if (std::none_of(tensors.begin(), tensors.end(),
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

// A plan that cannot be followed to its end is refused before the first step. It is followed here
// from its first decision on, as the exchange does it, as though owners owed something of every
// section: a memory that holds what is owed stays, and not every codec goes with it.
Status check_plan(const ExchangeOptions& base, const std::vector<TensorSpec>& tensors,
                  const std::vector<AutoDecision>& decisions) {
  std::optional<ExchangeOptions> now;
  Sections sections;
  for (const AutoDecision& decision : decisions) {
    const auto refuse = [&](const Status& status) {
      return Status::fail(status.code(),
                          "step " + std::to_string(decision.step) + ": " + status.message());
    };
    if (const Status fits = check_decision(decision, tensors); !fits) return refuse(fits);
    ExchangeOptions asked = decided_options(base, decision);
    if (now) {
      const std::vector<bool> owes(sections.used.size(), true);
      auto changed = changed_options(*now, sections, owes, asked, tensors, decision.step);
      if (!changed) return refuse(changed.status());
      asked = std::move(changed.value());
    }
    Result<Sections> resolved = resolve_sections(asked, tensors, decision.step);
    if (!resolved) return refuse(resolved.status());
    sections = std::move(resolved.value());
    now = std::move(asked);
  }
  return Status::ok();
}

// "'topk:density=0.1' from step 3 on".
std::string line_of(const std::vector<AutoDecision>& decisions, size_t i) {
  if (i >= decisions.size()) return "no other decision";
  std::string text = "'" + decisions[i].codec + "'";
  for (const auto& [tensor, codec] : decisions[i].others) text += ", '" + codec + "' for " + tensor;
  return text + " from step " + std::to_string(decisions[i].step) + " on";
}

}  // namespace

const AutoDecision& RecordedPlan::at(uint64_t step) const {
  const AutoDecision* found = &decisions_.front();
  for (const AutoDecision& one : decisions_)
    if (one.step <= step) found = &one;
  return *found;
}

AutoDecision RecordedPlan::begin(uint64_t step) const {
  AutoDecision first = at(step);
  first.step = step;
  return first;
}

Status RecordedPlan::check_followed(const std::vector<AutoDecision>& by_run, uint64_t step) const {
  std::vector<AutoDecision> here, there;
  // A run has no decision of its own where a line of a plan repeats the one before.
  const auto add = [](std::vector<AutoDecision>& to, const AutoDecision& one) {
    if (to.empty() || !same_codecs(to.back(), one)) to.push_back(one);
  };
  if (!by_run.empty() && by_run.front().step < step) here = {begin(by_run.front().step)};
  for (const AutoDecision& one : decisions_)
    if (!here.empty() && one.step > here.front().step && one.step < step) add(here, one);
  for (const AutoDecision& one : by_run)
    if (one.step < step) add(there, one);
  for (size_t i = 0; i < std::max(here.size(), there.size()); ++i) {
    const bool both = i < here.size() && i < there.size();
    if (both && here[i].step == there[i].step && same_codecs(here[i], there[i])) continue;
    return Status::fail(ErrorCode::kMismatch,
                        "codec 'auto': plan " + path_ + " has " + line_of(here, i) +
                            " where the run that is resumed followed " + line_of(there, i) +
                            "; resume it with the plan that it began with");
  }
  return Status::ok();
}

// set_step may have led back, to before the decision that holds now. What holds may have been
// decided at the same step as a line, by a run that was saved before its first step.
std::optional<AutoDecision> RecordedPlan::next(uint64_t step, const AutoDecision& now) const {
  const AutoDecision& here = at(step);
  if (same_codecs(here, now)) return std::nullopt;
  const bool due = now.step > step || (here.step <= step && here.step >= now.step);
  if (!due) return std::nullopt;
  AutoDecision next = here;
  next.step = step;
  return next;
}

RecordedPlan read_plan(AutoLink& link, const ExchangeOptions& base,
                       const std::vector<TensorSpec>& tensors, const std::string& path) {
  std::string text;
  together(link.channel(), [&] {
    if (!link.first()) return;
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
                           given = to_string(parse_auto(base.codec).value().loss);
    if (!recorded.empty() && recorded != given)
      throw Error(
          ErrorCode::kBadOption,
          "codec 'auto': plan " + path + " was recorded with loss=" + std::string(recorded) +
              ", and loss=" + std::string(given) +
              " holds here: memories would be others; write auto:loss=" + std::string(recorded) +
              ",plan=" + path);
    if (const Status can = check_plan(base, tensors, decisions.value()); !can)
      throw Error(can.code(), "codec 'auto': plan " + path + ": " + can.message());
  });
  return {path, decisions_from(link.of_first(std::move(text))).value()};
}

}  // namespace thinwire
