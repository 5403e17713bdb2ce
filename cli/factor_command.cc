// thinwire factor: low-rank factors in the place of a trained network's weights.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "cli/commands.h"
#include "cli/data_option.h"
#include "cli/exit_code.h"
#include "cli/number_check.h"
#include "cli/table.h"
#include "cli/text.h"
#include "thinwire/factor.h"

namespace thinwire::cli {
namespace {

using Json = nlohmann::ordered_json;

double times_smaller(uint64_t before, uint64_t after) {
  return static_cast<double>(before) / static_cast<double>(after > 0 ? after : 1);
}

std::string layers_text(const FactorReport& report) {
  Table table({"layer", "weights", "rank", "variance", "parameters", "factored"});
  for (const FactoredLayer& layer : report.layers) {
    const bool left = layer.rank == 0;
    table.add({layer.name + (layer.embedding ? " (embedding)" : ""),
               fmt::format("{} x {}", layer.rows, layer.columns),
               left ? "as it is" : fmt::format("{}", layer.rank), left ? "" : percent(layer.share),
               with_thousands(layer.parameters), left ? "" : with_thousands(layer.factored)});
  }
  return table.aligned();
}

// Names the layers whose rank ends where the samples do: "100 %" of their variance is then no
// sign of a good rank.
std::string limits_text(const FactorReport& report) {
  std::string text;
  for (const FactoredLayer& layer : report.layers) {
    const bool seen = layer.directions > 0;
    const bool limited = seen && layer.determined < layer.directions &&
                         (layer.rank == layer.determined || layer.determined == 0);
    if (limited)
      text += fmt::format("{}: its outputs at calibration vary in {} of {} directions, {}\n",
                          layer.name, layer.determined, layer.directions,
                          layer.rank > 0 ? "so the rank is no higher" : "so it is left as it is");
  }
  if (!text.empty() && report.calibration < report.training_samples)
    text +=
        fmt::format("More samples may determine more: --calibration is {}, of {}; 0: all\n",
                    with_thousands(report.calibration), with_thousands(report.training_samples));
  return text.empty() ? text : text + "\n";
}

std::string errors_text(const FactorReport& report) {
  Table table({"test", "error", "loss"});
  const auto add = [&](const char* name, const FactorScore& score) {
    table.add({name, percent(score.error), fmt::format("{:.4f}", score.loss)});
  };
  add("as trained", report.trained);
  add("factored by outputs", report.by_outputs);
  add("by the weights' singular values, same ranks", report.by_weights);
  return table.aligned();
}

std::string factor_text(const FactorReport& report) {
  return fmt::format(
      "{} on {}, checkpoint of step {}; outputs of {} of {} training samples\n\n{}\n{}"
      "all parameters: {}, factored {} ({})\n\n{}",
      report.model, report.data, with_thousands(report.step), with_thousands(report.calibration),
      with_thousands(report.training_samples), layers_text(report), limits_text(report),
      with_thousands(report.parameters), with_thousands(report.factored),
      ratio(times_smaller(report.parameters, report.factored)), errors_text(report));
}

std::string factor_json(const FactorReport& report) {
  const auto score = [](const FactorScore& one) {
    return Json{{"error", one.error}, {"loss", one.loss}};
  };
  Json json = {{"model", report.model},
               {"data", report.data},
               {"step", report.step},
               {"training_samples", report.training_samples},
               {"calibration", report.calibration},
               {"test_samples", report.test_samples},
               {"parameters", report.parameters},
               {"factored", report.factored},
               {"trained", score(report.trained)},
               {"by_outputs", score(report.by_outputs)},
               {"by_weights", score(report.by_weights)},
               {"layers", Json::array()}};
  for (const FactoredLayer& layer : report.layers) {
    Json one = {{"name", layer.name},
                {"kind", layer.embedding ? "embedding" : "linear"},
                {"rows", layer.rows},
                {"columns", layer.columns},
                {"rank", layer.rank > 0 ? Json(layer.rank) : Json(nullptr)},
                {"determined", layer.determined},
                {"directions", layer.directions},
                {"share", layer.share},
                {"parameters", layer.parameters},
                {"factored", layer.factored}};
    json["layers"].push_back(std::move(one));
  }
  return json.dump(2) + "\n";
}

struct FactorArguments {
  FactorRequest request;
  std::optional<double> keep;
  bool json = false;
};

void run(FactorArguments& arguments) {
  FactorRequest& request = arguments.request;
  if (arguments.keep && request.rank > 0)
    throw UsageError(ErrorCode::kBadOption, "--rank and --keep: give one of them");
  request.keep = arguments.keep.value_or(request.keep);
  const FactorReport report = factor_model(request);
  fmt::print("{}", arguments.json ? factor_json(report) : factor_text(report));
  if (!arguments.json && !request.out.empty()) fmt::print("\nfactored weights: {}\n", request.out);
}

void add_options(CLI::App& command, FactorArguments& arguments) {
  FactorRequest& request = arguments.request;
  command
      .add_option("RUN", request.run,
                  "The folder that train wrote with --out, or one of its checkpoints")
      ->required();
  command.add_option("--rank", request.rank, "The rank of every layer that it makes smaller")
      ->check(whole_number(1, 1 << 20))
      ->type_name("R");
  command
      .add_option("--keep", arguments.keep,
                  "Else each layer has the smallest rank that keeps this share of\n"
                  "the variance of its outputs")
      ->check(number_between(0.0, 1.0))
      ->default_str("0.99")
      ->type_name("SHARE");
  command
      .add_option("--calibration", request.calibration,
                  "Training samples, at equal distances, whose outputs are\n"
                  "looked at; 0: all")
      ->check(whole_number(0))
      ->capture_default_str()
      ->type_name("N");
  command
      .add_option("--out", request.out,
                  "Write the factored weights as safetensors: LAYER.weight.left,\n"
                  "LAYER.weight.right, LAYER.bias, and all others as they are")
      ->type_name("FILE");
  command.add_flag("--json", arguments.json, "As JSON, for programs");
  add_data_option(command, request.data);
  command.footer(
      "Linear layers and embeddings are factored where that makes them smaller. The test error is\n"
      "that of the products of the factors, beside that of the weights' own singular values.");
}

}  // namespace

void add_factor_command(CLI::App& program, int& /*exit_code*/) {
  auto arguments = std::make_shared<FactorArguments>();
  CLI::App* command =
      program.add_subcommand("factor", "Replace a run's weights by low-rank factors; test them");
  add_options(*command, *arguments);
  command->callback([arguments] { run(*arguments); });
}

}  // namespace thinwire::cli
