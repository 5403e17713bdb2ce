// Words the outcome of a plan.
// SPDX-License-Identifier: Apache-2.0
#include "cli/plan_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "cli/plan_words.h"
#include "cli/table.h"
#include "cli/text.h"

namespace thinwire::cli {
namespace {

std::string rate_text(double bits_per_second) {
  return to_string(LinkSpec{.bits_per_second = std::stod(fmt::format("{:.2g}", bits_per_second))});
}

// "resnet20 +0.3, char-lstm +0.2"; "not known".
std::string describe_accuracy(const std::vector<KnownAccuracy>& known) {
  std::vector<std::string> parts;
  for (const KnownAccuracy& one : known)
    parts.push_back(fmt::format("{} {:+.1f}", one.model, one.points));
  return parts.empty() ? "not known" : join(parts, ", ");
}

// What would have to be different for the other answer.
std::string what_would_change(const PlanTable& plan, const PlanRow& best) {
  if (plan.request.ranks == 1) return "A single rank sends nothing.";
  if (plan.break_even == 0)
    return fmt::format("No slower link would make {} faster than fp32.", best.codec);
  if (std::isinf(plan.break_even))  // of all rates that are looked at; this link may have no limit
    return fmt::format("{} is faster than fp32 over any link of this latency{}.", best.codec,
                       says_compress(plan) ? "" : " that limits the rate");
  return fmt::format("{} is faster than fp32 below {}.", best.codec, rate_text(plan.break_even));
}

std::string why_dense(const PlanRow& dense) {
  if (dense.step.limit == StepLimit::kComputation)
    return fmt::format("computation is {:.0f} % of an fp32 step",
                       100 * dense.step.compute_seconds / dense.step.seconds);
  if (dense.step.limit == StepLimit::kLatency)
    return "an fp32 step waits for latency, which no codec shortens";
  return fmt::format("an fp32 step is limited by {}, and coding takes as long as it saves",
                     to_string(dense.step.limit));
}

// What is said of the error of the codec that was chosen, and of a faster one.
std::string about_errors(const PlanTable& plan, const PlanRow& best) {
  if (!keeps_accuracy(best.accuracy)) {
    const std::string known = describe_accuracy(best.accuracy);
    return best.accuracy.empty()
               ? fmt::format(" What {} costs in accuracy is not known.", best.codec)
               : fmt::format(" Its error was {} points above fp32.", known);
  }
  const PlanRow& fastest = plan.rows.front();
  if (keeps_accuracy(fastest.accuracy) || best.step.seconds < kWorthwhile * fastest.step.seconds)
    return "";
  return fastest.accuracy.empty()
             ? fmt::format(" {} would be faster; what it costs in accuracy is not known.",
                           fastest.codec)
             : fmt::format(" {} would be faster; its error was {} points above fp32.",
                           fastest.codec, describe_accuracy(fastest.accuracy));
}

// Empty where the gain is beyond doubt.
std::string about_gain(double speed_up) {
  if (speed_up >= kClearGain) return "";
  return fmt::format(
      " A gain of {:.0f} % is less than predictions are sure of: time steps with and without it on "
      "your machines.",
      100 * (speed_up - 1));
}

std::string about_accuracy(const PlanTable& plan, const PlanRow& best) {
  std::string text = about_errors(plan, best);
  if (best.wants_short_trial)
    text +=
        " It leaves most gradient values for later steps, so compare the losses of a short run "
        "with it and without it first.";
  return text;
}

bool in_rounds(const PlanTable& plan) {
  return plan.rows[plan.dense].step.longest_seconds > plan.rows[plan.dense].step.seconds;
}

Table table_of(const PlanTable& plan) {
  const bool levels = plan.request.per_machine > 1 && plan.way.empty(), rounds = in_rounds(plan);
  std::vector<std::string> headings = {"codec", "method", "ms per step"};
  if (rounds) headings.emplace_back("longest");
  headings.insert(headings.end(), {"over fp32", "limited by", "coding ms", "wire ms"});
  headings.emplace_back("bytes per step");
  if (levels) headings.emplace_back("between machines");
  headings.insert(headings.end(), {"memory", "error, points"});
  Table table(headings);
  for (const PlanRow& row : plan.rows) {
    const StepPrediction& step = row.step;
    std::vector<std::string> cells = {row.codec, step.method, milliseconds(step.seconds)};
    if (rounds) cells.push_back(milliseconds(step.longest_seconds));
    cells.insert(cells.end(), {ratio(speed_up(plan, row)), std::string(to_string(step.limit)),
                               milliseconds(step.encode_seconds + step.decode_seconds),
                               milliseconds(step.wire_seconds)});
    cells.push_back(bytes_text(step, step.busiest_bytes()));
    if (levels) cells.push_back(bytes_text(step, step.busiest_between().value()));
    cells.push_back(human_bytes(step.memory_bytes));
    cells.push_back(&row == &plan.rows[plan.dense] ? "" : describe_accuracy(row.accuracy));
    table.add(std::move(cells));
  }
  return table;
}

// "16 ranks on 2 machines, 1 Gbit/s between these, no limit inside".
std::string ranks_text(const PlanTable& plan) {
  const PlanRequest& request = plan.request;
  if (request.per_machine == 1)
    return fmt::format("{} ranks, {}", request.ranks, to_string(request.link));
  const int machines = request.ranks / request.per_machine;
  return fmt::format("{} ranks on {} machine{}, {} between these, {} inside", request.ranks,
                     machines, machines == 1 ? "" : "s", to_string(request.link),
                     to_string(request.inside));
}

// What an exchange among all ranks would come to.
std::string about_flat(const PlanTable& plan) {
  if (!plan.flat) return "";
  std::string text =
      fmt::format("\nWithout a hierarchy (exchange.inside = 1) fp32 would take {} ms a step",
                  milliseconds(plan.flat->dense));
  if (plan.flat->best)
    text += fmt::format(", {} {} ms", plan.rows[*plan.best].codec, milliseconds(*plan.flat->best));
  return text + ".";
}

}  // namespace

void rank_rows(PlanTable& plan) {
  std::stable_sort(plan.rows.begin(), plan.rows.end(), [](const PlanRow& a, const PlanRow& b) {
    return a.step.seconds < b.step.seconds;
  });
  std::vector<CodecStep> steps;
  std::vector<size_t> rows;  // of these
  for (size_t i = 0; i < plan.rows.size(); ++i) {
    const PlanRow& row = plan.rows[i];
    if (row.codec == "fp32") {
      plan.dense = i;
      continue;
    }
    steps.push_back({.seconds = row.step.seconds, .accuracy = row.accuracy});
    rows.push_back(i);
  }
  if (const auto best = choose_codec(steps, plan.rows[plan.dense].step.seconds))
    plan.best = rows[*best];
}

bool says_compress(const PlanTable& plan) {
  return plan.best && speed_up(plan, plan.rows[*plan.best]) >= kWorthwhile;
}

std::string verdict_of(const PlanTable& plan) {
  const PlanRow& dense = plan.rows[plan.dense];
  if (!plan.best) return "There is no other codec to compare fp32 with.";
  const PlanRow& best = plan.rows[*plan.best];
  if (!says_compress(plan))
    return fmt::format("Do not compress: {}. {}", why_dense(dense), what_would_change(plan, best));
  return fmt::format(
      "Compress: {} takes {} ms a step, {} ms with fp32.{}{} What is left is limited by {}. {}",
      best.codec, milliseconds(best.step.seconds), milliseconds(dense.step.seconds),
      about_gain(speed_up(plan, best)), about_accuracy(plan, best), to_string(best.step.limit),
      what_would_change(plan, best));
}

std::string plan_text(const PlanTable& plan) {
  std::string text =
      fmt::format("{}, {}; computation takes {} ms a step ({})\n\n", head_of(plan),
                  ranks_text(plan), milliseconds(plan.timeline.compute_seconds), plan.measured_by);
  text += table_of(plan).aligned() + "\n" + verdict_of(plan) + about_flat(plan) + "\n\n";
  text += basis_of(plan);
  if (plan.way.empty())
    text +=
        "Error is what thinwire's own short runs on two networks lost, in percentage points above\n"
        "fp32, one to three seeds each (docs/results/defaults.md, methods.md): a point or two may "
        "be\nchance.\n";
  return text;
}

}  // namespace thinwire::cli
