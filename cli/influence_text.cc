// Influence as tables for people.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <string>
#include <vector>

#include "cli/influence_views.h"
#include "cli/table.h"
#include "cli/text.h"

namespace thinwire::cli {
namespace {

// "3", or "3 for 5" where the label is wrong.
std::string label_of(const InfluenceSample& sample) {
  return sample.true_label ? fmt::format("{} (true {})", sample.label, *sample.true_label)
                           : fmt::format("{}", sample.label);
}

std::string list_of(const std::string& heading, const std::vector<InfluenceSample>& samples) {
  if (samples.empty()) return fmt::format("  no {}\n", heading);
  Table table({heading, "influence", "label", "predicted", "probability of the label"});
  for (const InfluenceSample& sample : samples)
    table.add({fmt::format("{}", sample.index), fmt::format("{:.4g}", sample.influence),
               label_of(sample), fmt::format("{}", sample.predicted),
               fmt::format("{:.3f}", sample.probability)});
  return table.aligned();
}

}  // namespace

std::string influence_about(const InfluenceReport& report) {
  const size_t count = report.checkpoints.size();
  const uint64_t first = report.checkpoints.front().step, last = report.checkpoints.back().step;
  return fmt::format("{} on {}: {} training samples, {}", report.model, report.data,
                     with_thousands(report.training_samples),
                     count == 1 ? fmt::format("the checkpoint of step {}", with_thousands(last))
                                : fmt::format("{} checkpoints of steps {} to {}", count,
                                              with_thousands(first), with_thousands(last)));
}

std::string found_sentence(const WrongLabelsFound& found) {
  std::vector<std::string> parts;
  for (const auto& share : found.shares)
    parts.push_back(
        fmt::format("{} among the first {:.0f}%", percent(share.found), 100 * share.looked_at));
  return fmt::format("Of {} planted wrong labels {}.", with_thousands(found.planted),
                     join(parts, ", "));
}

std::string influence_text(const InfluenceReport& report, bool ranking) {
  std::string text = influence_about(report) + "\n";
  for (const InfluenceOf& one : report.of) {
    const InfluenceSample& sample = one.sample;
    text += fmt::format(
        "\n{} sample {}: label {}, predicted {}, probability of the label {:.3f}, influence on "
        "itself {:.4g}\n\n",
        to_string(report.part), sample.index, label_of(sample), sample.predicted,
        sample.probability, sample.influence);
    text += list_of("proponents", one.proponents) + "\n" + list_of("opponents", one.opponents);
  }
  if (ranking)
    text += "\nTraining samples by their influence on themselves\n\n" +
            list_of("sample", report.ranking);
  if (report.wrong)
    text += "\nRanked by influence on themselves: " + found_sentence(*report.wrong) + "\n";
  return text;
}

}  // namespace thinwire::cli
