// Plans as JSON.
// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "cli/plan_table.h"
#include "cli/plan_words.h"

namespace thinwire::cli {
namespace {

using Json = nlohmann::ordered_json;

Json row_json(const PlanTable& plan, const PlanRow& row) {
  const StepPrediction& step = row.step;
  const std::optional<double> between = step.busiest_between();
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
          {"longest_seconds", step.longest_seconds},
          {"limit", to_string(step.limit)},
          {"compute_seconds", step.compute_seconds},
          {"encode_seconds", step.encode_seconds},
          {"decode_seconds", step.decode_seconds},
          {"wire_seconds", step.wire_seconds},
          {"sent_bytes", step.busiest_bytes()},
          {"between_bytes", between ? Json(*between) : Json()},
          {"bytes_exact", step.bytes_exact},
          {"memory_bytes", step.memory_bytes},
          {"known_accuracy", std::move(accuracy)}};
}

Json plan_object(const PlanTable& plan) {
  Json rows = Json::array();
  for (const PlanRow& row : plan.rows) rows.push_back(row_json(plan, row));
  return {
      {"name", plan.name},
      {"way", plan.way},
      {"ranks", plan.request.ranks},
      {"per_machine", plan.request.per_machine},
      {"bits_per_second", plan.request.link.bits_per_second},
      {"latency_seconds", plan.request.link.latency_seconds},
      {"inside_bits_per_second", plan.request.inside.bits_per_second},
      {"inside_latency_seconds", plan.request.inside.latency_seconds},
      {"own_core", plan.request.own_core},
      {"copy_seconds_per_byte", plan.request.copy_seconds_per_byte},
      {"values", plan.timeline.values()},
      {"compute_seconds", plan.timeline.compute_seconds},
      {"processor", plan.processor},
      {"compress", says_compress(plan)},
      {"verdict", verdict_of(plan)},
      {"break_even_bits_per_second", std::isinf(plan.break_even) ? Json() : Json(plan.break_even)},
      {"codecs", std::move(rows)}};
}

}  // namespace

std::string plan_json(const PlanTable& plan) { return plan_object(plan).dump(2) + "\n"; }

std::string scale_json(const std::vector<PlanTable>& plans) {
  Json all = Json::array();
  for (const PlanTable& plan : plans) all.push_back(plan_object(plan));
  return all.dump(2) + "\n";
}

}  // namespace thinwire::cli
