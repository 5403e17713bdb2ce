// thinwire train: one run of one recipe.
// SPDX-License-Identifier: Apache-2.0
#include <errno.h>  // program_invocation_name
#include <fmt/format.h>

#include <cstdio>
#include <filesystem>
#include <memory>

#include "cli/commands.h"
#include "cli/exit_code.h"
#include "cli/interrupt.h"
#include "cli/report/page.h"
#include "cli/result.h"
#include "cli/run_folder.h"
#include "cli/session.h"
#include "cli/terminal.h"

namespace thinwire::cli {
namespace {

struct TrainArguments : RunArguments {
  std::string resume;
  bool report = false;
  bool tensorboard = false;
};

// The folder of the run that --resume names: itself, or the one that holds the named checkpoint.
// Throws UsageError where a checkpoint stands in no run's folder, as one that was copied: nobody
// said where its run shall write.
std::string run_folder(const std::string& resume) {
  const std::filesystem::path path(resume.ends_with('/') ? resume.substr(0, resume.size() - 1)
                                                         : resume);
  if (!is_checkpoint(path)) return resume;
  const std::filesystem::path parent = path.has_parent_path() ? path.parent_path() : ".";
  // Not by recipe.toml: a folder of the user's own may have one.
  if (!std::filesystem::exists(parent / "metrics.jsonl"))
    throw UsageError(ErrorCode::kBadOption,
                     fmt::format("--resume {}: is a checkpoint outside the folder of its run; name "
                                 "the folder to write into with --out",
                                 resume));
  return parent.string();
}

std::string in_words(const std::string& method) {
  return method.empty() ? "" : fmt::format("own steps and {}, ", method);
}

// The folder has the whole recipe, changes and number of workers included.
std::string resume_command(const TrainArguments& arguments, const Workers& workers,
                           const std::string& out) {
  return fmt::format("{}{} train {} --resume {}{}",
                     workers.under_mpirun() ? fmt::format("mpirun -n {} ", workers.size()) : "",
                     program_invocation_name, (std::filesystem::path(out) / "recipe.toml").string(),
                     out, arguments.data == "data" ? "" : " --data " + arguments.data);
}

// What travels between the workers.
std::string describe_traffic(const Options& recipe) {
  const std::string codec = "codec " + recipe.text("exchange.codec");
  const bool pipeline = recipe.integer("pipeline.stages") > 0;
  if (!pipeline && recipe.integer("tensor.ranks") == 0)
    return in_words(recipe.text("sync.method")) + codec;
  const std::string table = pipeline ? "pipeline." : "tensor.";
  const auto way = [&](const char* direction) {
    const std::string& memory = recipe.text(table + direction + "_memory");
    return recipe.text(table + direction) + (memory == "none" ? "" : " with " + memory);
  };
  const std::string& encoded = recipe.text(table + "autoencoder");
  return fmt::format(
      "{}, {} forward, {} backward{}",
      pipeline ? fmt::format("{} stages", recipe.integer("pipeline.stages"))
               : fmt::format("{} ranks share layers", recipe.integer("tensor.ranks")),
      way("forward"), way("backward"), encoded == "none" ? "" : ", autoencoder " + encoded);
}

int train(const TrainArguments& arguments) {
  Workers workers = or_usage_error(Workers::find(arguments.workers, load_recipe(arguments)));
  const Recipe recipe = load_recipe(arguments, "", workers.size());
  bool speak = workers.rank() == 0;
  const Terminal terminal = look_at(stderr);
  if (speak)
    fmt::print(stderr, "{}: {}, {}\n", styled(terminal, Style::kBold, recipe.name),
               workers.describe(), describe_traffic(recipe.options));
  const std::string out = arguments.out.empty() ? run_folder(arguments.resume) : arguments.out;
  if (arguments.report && out.empty())
    throw UsageError(ErrorCode::kBadOption,
                     "--report: its page goes into the folder of the run: give --out too");
  if (arguments.tensorboard && out.empty())
    throw UsageError(
        ErrorCode::kBadOption,
        "--tensorboard: its event files go into the folder of the run: give --out too");
  const RunSummary summary = train_and_show(workers, recipe,
                                            {.data = arguments.data,
                                             .out = out,
                                             .resume = arguments.resume,
                                             .tensorboard = arguments.tensorboard});
  speak = workers.rank() == 0;  // another one, if rank 0 was lost
  if (speak) fmt::print("{}", describe_result(summary, out, look_at(stdout)));
  if (speak && arguments.report && add_report(out, recipe.name))
    fmt::print("  {:<13} {}\n", "charts", (std::filesystem::path(out) / "report.html").string());
  if (summary.finished) return kExitOk;
  if (speak && !out.empty())
    fmt::print(stderr, "go on with: {}\n", resume_command(arguments, workers, out));
  return kExitStopped;
}

}  // namespace

void add_train_command(CLI::App& program, int& exit_code) {
  auto arguments = std::make_shared<TrainArguments>();
  CLI::App* command = program.add_subcommand("train", "Train as a recipe says");
  add_run_arguments(*command, *arguments);
  command
      ->add_option("--resume", arguments->resume,
                   "Continue the run in this folder; --out is then the same")
      ->type_name("DIR");
  command->add_flag("--report", arguments->report,
                    "Write report.html, a page with charts, into the folder too");
  command->add_flag("--tensorboard", arguments->tensorboard,
                    "Write event files for TensorBoard into the folder too");
  command->callback([arguments, &exit_code] {
    watch_interrupts();
    exit_code = train(*arguments);
  });
}

}  // namespace thinwire::cli
