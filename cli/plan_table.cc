// Words the outcome of a plan.
// SPDX-License-Identifier: Apache-2.0
#include "cli/plan_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "cli/table.h"
#include "cli/text.h"

namespace thinwire::cli {
namespace {

using Json = nlohmann::ordered_json;

std::string milliseconds(double seconds) {
  const double ms = 1e3 * seconds;
  return fmt::format("{:.{}f}", ms, ms < 10 ? 2 : ms < 100 ? 1 : 0);
}

std::string rate_text(double bits_per_second) {
  return to_string(LinkSpec{.bits_per_second = std::stod(fmt::format("{:.2g}", bits_per_second))});
}

double speed_up(const PlanTable& plan, const PlanRow& row) {
  return plan.rows[plan.dense].step.seconds / row.step.seconds;
}

// Whether all that is known says that the network learns as well as with fp32.
bool keeps_accuracy(const PlanRow& row) {
  constexpr double kMost = 1;  // points
  return !row.accuracy.empty() &&
         std::all_of(row.accuracy.begin(), row.accuracy.end(),
                     [](const KnownAccuracy& known) { return known.points <= kMost; });
}

// What would have to be different for the other answer.
std::string what_would_change(const PlanTable& plan, const PlanRow& best) {
  if (plan.request.ranks == 1) return "A single rank sends nothing.";
  if (plan.break_even == 0)
    return fmt::format("No slower link would make {} faster than fp32.", best.codec);
  if (std::isinf(plan.break_even))
    return fmt::format("{} is faster than fp32 over any link of this latency.", best.codec);
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
std::string about_accuracy(const PlanTable& plan, const PlanRow& best) {
  if (!keeps_accuracy(best)) {
    const std::string known = describe_accuracy(best.accuracy);
    return best.accuracy.empty()
               ? fmt::format(" What {} costs in accuracy is not known.", best.codec)
               : fmt::format(" Its error was {} points above fp32.", known);
  }
  const PlanRow& fastest = plan.rows.front();
  return &fastest == &best
             ? ""
             : fmt::format(" {} would be faster, and may cost accuracy.", fastest.codec);
}

Table table_of(const PlanTable& plan) {
  Table table({"codec", "method", "ms per step", "over fp32", "limited by", "coding ms", "wire ms",
               "bytes per step", "memory", "error, points"});
  for (const PlanRow& row : plan.rows) {
    const StepPrediction& step = row.step;
    table.add({row.codec, step.method, milliseconds(step.seconds), ratio(speed_up(plan, row)),
               std::string(to_string(step.limit)),
               milliseconds(step.encode_seconds + step.decode_seconds),
               milliseconds(step.wire_seconds),
               (step.bytes_exact ? "" : "~") + human_bytes(step.busiest_bytes()),
               human_bytes(step.memory_bytes),
               &row == &plan.rows[plan.dense] ? "" : describe_accuracy(row.accuracy)});
  }
  return table;
}

Json row_json(const PlanTable& plan, const PlanRow& row) {
  const StepPrediction& step = row.step;
  Json accuracy = Json::array();
  for (const KnownAccuracy& known : row.accuracy)
    accuracy.push_back({{"model", known.model},
                        {"epochs", known.epochs},
                        {"points", known.points},
                        {"seeds", known.seeds}});
  return {{"codec", row.codec},
          {"method", step.method},
          {"seconds", step.seconds},
          {"speed_up", speed_up(plan, row)},
          {"limit", to_string(step.limit)},
          {"compute_seconds", step.compute_seconds},
          {"encode_seconds", step.encode_seconds},
          {"decode_seconds", step.decode_seconds},
          {"wire_seconds", step.wire_seconds},
          {"sent_bytes", step.busiest_bytes()},
          {"bytes_exact", step.bytes_exact},
          {"memory_bytes", step.memory_bytes},
          {"known_accuracy", std::move(accuracy)}};
}

}  // namespace

void rank_rows(PlanTable& plan) {
  std::stable_sort(plan.rows.begin(), plan.rows.end(), [](const PlanRow& a, const PlanRow& b) {
    return a.step.seconds < b.step.seconds;
  });
  std::optional<size_t> fastest, safe;
  for (size_t i = 0; i < plan.rows.size(); ++i) {
    if (plan.rows[i].codec == "fp32") {
      plan.dense = i;
      continue;
    }
    if (!fastest) fastest = i;
    if (!safe && keeps_accuracy(plan.rows[i])) safe = i;
  }
  const bool serves = safe && speed_up(plan, plan.rows[*safe]) >= kWorthwhile;
  plan.best = serves ? safe : fastest;
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
      "Compress: {} takes {} ms a step, {} ms with fp32.{} What is left is limited by {}. {}",
      best.codec, milliseconds(best.step.seconds), milliseconds(dense.step.seconds),
      about_accuracy(plan, best), to_string(best.step.limit), what_would_change(plan, best));
}

std::string plan_text(const PlanTable& plan) {
  std::string text = fmt::format(
      "{}: {} values in {} tensors, {} ranks, {}; computation takes {} ms a step ({})\n\n",
      plan.name, with_thousands(plan.timeline.values()), plan.timeline.tensors.size(),
      plan.request.ranks, to_string(plan.request.link), milliseconds(plan.timeline.compute_seconds),
      plan.measured_by);
  text += table_of(plan).aligned() + "\n" + verdict_of(plan) + "\n\n";
  text +=
      fmt::format("Times are predicted. Codecs were measured on one core of {}.\n", plan.processor);
  text += plan.request.own_core
              ? "The exchange has a core of its own.\n"
              : "The exchange shares its core with the computation; --cores says if it need not.\n";
  text +=
      "~ marks estimates: the payloads of these codecs depend on the data. Other bytes are exact,\n"
      "those of the rank that sends most. Memory is what codecs keep between steps.\n"
      "Error is that of docs/results/methods.md in points above fp32, of short runs with one seed\n"
      "each, in which a point or two may be chance.\n";
  return text;
}

std::string plan_json(const PlanTable& plan) {
  Json rows = Json::array();
  for (const PlanRow& row : plan.rows) rows.push_back(row_json(plan, row));
  const Json all = {
      {"name", plan.name},
      {"ranks", plan.request.ranks},
      {"bits_per_second", plan.request.link.bits_per_second},
      {"latency_seconds", plan.request.link.latency_seconds},
      {"own_core", plan.request.own_core},
      {"values", plan.timeline.values()},
      {"compute_seconds", plan.timeline.compute_seconds},
      {"processor", plan.processor},
      {"compress", says_compress(plan)},
      {"verdict", verdict_of(plan)},
      {"break_even_bits_per_second", std::isinf(plan.break_even) ? Json() : Json(plan.break_even)},
      {"codecs", std::move(rows)}};
  return all.dump(2) + "\n";
}

}  // namespace thinwire::cli
