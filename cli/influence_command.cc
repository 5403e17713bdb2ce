// thinwire influence: to which training samples a run owes what it predicts.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

#include "cli/commands.h"
#include "cli/data_option.h"
#include "cli/exit_code.h"
#include "cli/influence_views.h"
#include "cli/number_check.h"
#include "cli/report/page.h"
#include "cli/report/reported_run.h"
#include "cli/terminal.h"
#include "thinwire/influence.h"
#include "thinwire/trainer.h"

namespace thinwire::cli {
namespace {

namespace fs = std::filesystem;

struct InfluenceArguments {
  InfluenceRequest request;
  bool ranking = false;
  bool json = false;
  std::string page;
};

SamplePart part_of(const std::string& text) {
  for (const SamplePart part : {SamplePart::kTest, SamplePart::kHeldOut, SamplePart::kTraining})
    if (text == to_string(part)) return part;
  throw UsageError(ErrorCode::kUnknownName,
                   fmt::format("--from {}: unknown; known: test, held-out, training", text));
}

void write_page(const std::string& page, const fs::path& path) {
  std::ofstream file(path, std::ios::binary);
  if (!(file << page << std::flush))
    throw Error(ErrorCode::kIo, path.string() + ": cannot be written");
}

void run(InfluenceArguments& arguments) {
  InfluenceRequest& request = arguments.request;
  if (request.of.empty() && !arguments.ranking && request.scores.empty())
    throw UsageError(ErrorCode::kBadOption,
                     "nothing to show: give --of INDEX..., --self, or both (see thinwire influence "
                     "--help)");
  fs::path page = arguments.page;
  if (page.empty() && !arguments.json) page = fs::path(request.run) / kInfluencePage;
  request.pictures = !page.empty();
  // Of a RUN that is not there measure_influence says more.
  if (!arguments.page.empty() || (!page.empty() && fs::exists(request.run)))
    check_output(page.string(), Writing::kInPlace);
  if (!page.empty() && page == fs::path(request.scores))
    throw UsageError(
        ErrorCode::kBadOption,
        fmt::format("--page and --scores: both are {}; name two files", page.string()));
  if (look_at(stderr).live)
    request.note = [](const std::string& text) { fmt::print(stderr, "{}\n", text); };
  const InfluenceReport report = measure_influence(request);
  fmt::print("{}", arguments.json ? influence_json(report, arguments.ranking)
                                  : influence_text(report, arguments.ranking));
  if (page.empty()) return;
  write_page(influence_page(report, arguments.ranking, folder_name(request.run)), page);
  if (!arguments.json) fmt::print("\npictures: {}\n", page.string());
}

void add_options(CLI::App& command, InfluenceArguments& arguments) {
  InfluenceRequest& request = arguments.request;
  command
      .add_option("RUN", request.run,
                  "The folder that train wrote with --out, or one of its checkpoints")
      ->required();
  command
      .add_option("--of", request.of,
                  "Samples, counted from 0, whose proponents and opponents\n"
                  "among the training samples are wanted")
      ->check(whole_number(0))
      ->type_name("INDEX");
  command
      .add_option_function<std::string>(
          "--from", [&request](const std::string& text) { request.part = part_of(text); },
          "Which samples --of means: test, held-out (data.hold_out), training")
      ->default_str("test")
      ->type_name("PART");
  command.add_flag("--self", arguments.ranking,
                   "Rank the training samples by their influence on themselves:\n"
                   "first come those that are rare or have a wrong label");
  command
      .add_option("--checkpoints", request.checkpoints,
                  "Use so many of the run's, at equal distances; else all")
      ->check(whole_number(1, 1 << 20))
      ->type_name("K");
  command.add_option("--most", request.most, "Samples in a list")
      ->check(whole_number(1, 1 << 20))
      ->capture_default_str()
      ->type_name("N");
  command.add_flag("--json", arguments.json, "As JSON, for programs; the page only with --page");
  command.add_option("--page", arguments.page, "The page of pictures; else influence.html in RUN")
      ->type_name("FILE");
  command
      .add_option("--scores", request.scores,
                  "Write every value as safetensors: self, labels, true_labels\n"
                  "of the training samples, influence (a row for each of --of)")
      ->type_name("FILE");
  add_data_option(command, request.data);
  command.footer(
      "A run keeps as many checkpoints as checkpoint.keep says (2), one every\n"
      "train.checkpoint_every epochs. The page is one file, which needs no network.");
}

}  // namespace

void add_influence_command(CLI::App& program, int& /*exit_code*/) {
  auto arguments = std::make_shared<InfluenceArguments>();
  CLI::App* command = program.add_subcommand(
      "influence", "Find the training samples to which a run owes its predictions");
  add_options(*command, *arguments);
  command->callback([arguments] { run(*arguments); });
}

}  // namespace thinwire::cli
