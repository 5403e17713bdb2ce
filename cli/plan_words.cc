// Numbers and lines about predictions.
// SPDX-License-Identifier: Apache-2.0
#include "cli/plan_words.h"

#include <fmt/format.h>

#include "cli/text.h"

namespace thinwire::cli {

std::string milliseconds(double seconds) {
  const double ms = 1e3 * seconds;
  return fmt::format("{:.{}f}", ms, ms < 10 ? 2 : ms < 100 ? 1 : 0);
}

double speed_up(const PlanTable& plan, const PlanRow& row) {
  return plan.rows[plan.dense].step.seconds / row.step.seconds;
}

std::string bytes_text(const StepPrediction& step, double bytes) {
  return (step.bytes_exact ? "" : "~") + human_bytes(bytes);
}

std::string head_of(const PlanTable& plan) {
  return fmt::format("{}: {} values in {} tensors{}", plan.name,
                     with_thousands(plan.timeline.values()), plan.timeline.tensors.size(),
                     plan.way.empty() ? "" : ", " + plan.way);
}

std::string basis_of(const PlanTable& plan) {
  std::string text =
      fmt::format("Times are predicted. Codecs were measured on one core of {}.\n", plan.processor);
  text += plan.request.own_core
              ? "The exchange has a core of its own.\n"
              : "The exchange shares its core with the computation; --cores says if it need not.\n";
  if (plan.request.copy_seconds_per_byte > 0)
    text += fmt::format(
        "Sending and receiving a byte takes {:.2f} ns of the processors, measured here.\n",
        1e9 * plan.request.copy_seconds_per_byte);
  text +=
      "~ marks estimates: the payloads of these codecs depend on the data. Other bytes are exact,\n"
      "those of the rank that sends most. Memory is what codecs keep between steps.\n";
  for (const std::string& note : plan.notes) text += note + "\n";
  return text;
}

}  // namespace thinwire::cli
