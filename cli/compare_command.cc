// thinwire compare: the same recipe and seed under several codecs, and one table of what they cost.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "cli/commands.h"
#include "cli/exit_code.h"
#include "cli/interrupt.h"
#include "cli/report/page.h"
#include "cli/run_folder.h"
#include "cli/run_list.h"
#include "cli/session.h"
#include "cli/table.h"
#include "cli/terminal.h"
#include "cli/text.h"
#include "thinwire/auto_codec.h"

namespace thinwire::cli {
namespace {

namespace fs = std::filesystem;

struct CompareArguments : RunArguments {
  std::string codecs;
};

struct Run {
  std::string codec;  // as the user wrote it
  Recipe recipe;
  RunSummary summary = {};
};

// "1-sidco-density-0.01": a folder's name that says which run it holds.
std::string folder_of(size_t index, const std::string& codec) {
  std::string name = fmt::format("{}-{}", index + 1, codec);
  for (char& c : name)
    if (std::isalnum(static_cast<unsigned char>(c)) == 0 && c != '.') c = '-';
  return name;
}

std::vector<std::string> folders_of(const std::vector<Run>& runs) {
  std::vector<std::string> folders;
  for (const Run& run : runs) folders.push_back(folder_of(folders.size(), run.codec));
  return folders;
}

// fp32, the recipe's own codec, and SIDCo or else AdaComp: what a recipe is compared by.
std::string usual_codecs(const std::string& own) {
  constexpr std::string_view kSidco = "sidco:density=0.01";
  if (is_auto(own)) return fmt::format("fp32;{};{}", own, kSidco);
  auto parts = scheduled_codecs(own).value();
  const auto all = [&](const auto& is) {
    return std::all_of(parts.begin(), parts.end(),
                       [&](const NamedCodec& part) { return is(part.codec->info()); });
  };
  if (all([](const CodecInfo& info) { return info.lossless; }))
    return fmt::format("fp32;adacomp;{}", kSidco);
  const std::string_view sidco = make_codec(kSidco).value().codec->info().name;
  const bool is_sidco = all([&](const CodecInfo& info) { return info.name == sidco; });
  return fmt::format("fp32;{};{}", own, is_sidco ? "adacomp" : kSidco);
}

std::vector<Run> prepare(const CompareArguments& arguments) {
  std::vector<Run> runs;
  const std::string codecs =
      arguments.codecs.empty() ? usual_codecs(load_recipe(arguments).options.text("exchange.codec"))
                               : arguments.codecs;
  for (const std::string& codec : split_codecs(codecs))
    runs.push_back({codec, load_recipe(arguments, codec)});
  if (runs.empty()) throw UsageError(ErrorCode::kBadOption, "--codecs: names no codec");
  return runs;
}

Table table_of(const std::vector<Run>& runs) {
  const bool held_out = runs.front().summary.final_hold_out_error.has_value();
  std::vector<std::string> headings = {"codec", "test error"};
  if (held_out) headings.push_back("held-out error");
  for (const char* more : {"bytes per step and rank", "wire ratio", "codec ratio", "seconds"})
    headings.push_back(more);
  Table table(headings);
  for (const auto& [codec, recipe, summary] : runs) {
    std::vector<std::string> row = {codec, percent(summary.final_test_error)};
    if (held_out) row.push_back(percent(summary.final_hold_out_error.value_or(1)));
    row.push_back(with_thousands(static_cast<uint64_t>(std::llround(summary.sent_bytes_per_step))));
    row.push_back(ratio(summary.wire_ratio));
    row.push_back(ratio(summary.codec_ratio));
    row.push_back(fmt::format("{:.0f}", summary.seconds));
    table.add(row);
  }
  return table;
}

nlohmann::ordered_json json_of(const std::vector<Run>& runs) {
  auto all = nlohmann::ordered_json::array();
  for (const auto& [codec, recipe, summary] : runs) {
    nlohmann::ordered_json row = {{"recipe", summary.recipe},
                                  {"world_size", summary.world_size},
                                  {"codec", summary.codec},
                                  {"steps", summary.steps},
                                  {"samples", summary.samples},
                                  {"final_test_error", summary.final_test_error},
                                  {"best_test_error", summary.best_test_error},
                                  {"dense_bytes_per_step", summary.dense_bytes_per_step},
                                  {"sent_bytes_per_step", summary.sent_bytes_per_step},
                                  {"wire_ratio", summary.wire_ratio},
                                  {"codec_ratio", summary.codec_ratio},
                                  {"achieved_over_target", summary.achieved_over_target},
                                  {"seconds", summary.seconds},
                                  {"skipped_steps", summary.skipped_steps}};
    if (summary.inside_bytes_per_step > 0) {
      row["inside_bytes_per_step"] = summary.inside_bytes_per_step;
      row["between_bytes_per_step"] = summary.between_bytes_per_step;
    }
    if (summary.final_hold_out_error) row["final_hold_out_error"] = *summary.final_hold_out_error;
    all.push_back(std::move(row));
  }
  return all;
}

void write_file(const fs::path& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  if (!(file << text << std::flush))
    throw Error(ErrorCode::kIo, path.string() + ": cannot be written");
}

int compare(const CompareArguments& arguments) {
  std::vector<Run> runs = prepare(arguments);
  Workers workers = or_usage_error(Workers::find(arguments.workers, runs[0].recipe));
  for (Run& run : runs) run.recipe = load_recipe(arguments, run.codec, workers.size());
  const bool speak = workers.rank() == 0;
  const Terminal terminal = look_at(stderr);
  if (speak)
    fmt::print(stderr, "{}: {}, {} codecs, one after the other\n",
               styled(terminal, Style::kBold, runs[0].recipe.name), workers.describe(),
               runs.size());
  std::optional<RunList> list;
  if (speak && !arguments.out.empty()) list.emplace(arguments.out, folders_of(runs));
  size_t finished = 0;
  for (Run& run : runs) {
    if (speak)
      fmt::print(stderr, "{}\n",
                 styled(terminal, Style::kBold,
                        fmt::format("[{}/{}] {}", finished + 1, runs.size(), run.codec)));
    RunPlaces places{.data = arguments.data, .out = {}, .resume = {}};
    if (!arguments.out.empty())
      places.out = (fs::path(arguments.out) / folder_of(finished, run.codec)).string();
    if (is_unfinished(places.out)) {
      const std::string difference = difference_to_unfinished(places.out, run.recipe);
      if (difference.empty()) {
        places.resume = places.out;
      } else if (speak) {  // as the others find the same, or nothing any more, none resumes
        fmt::print(stderr, "! {}: the unfinished run is of another recipe ({}); begins anew\n",
                   places.out, difference);
        remove_unfinished(places.out);
      }
    }
    run.summary = train_and_show(workers, run.recipe, places);
    if (!run.summary.finished) break;
    ++finished;
    if (stop_requested()) break;  // while it ran, a run that cannot stop early
  }
  list.reset();
  const bool stopped = finished < runs.size();
  runs.resize(finished);
  if (speak && !runs.empty()) {
    const Table table = table_of(runs);
    if (!arguments.out.empty()) {
      write_file(fs::path(arguments.out) / "compare.md", table.markdown());
      write_file(fs::path(arguments.out) / "compare.json", json_of(runs).dump(2) + "\n");
    }
    fmt::print("\n{}", table.aligned());
    if (!arguments.out.empty()) {
      fmt::print("\n  files: {}\n", arguments.out);
      if (add_report(arguments.out, runs[0].recipe.name))
        fmt::print("  charts: {}\n", (fs::path(arguments.out) / "report.html").string());
    }
  }
  return stopped ? kExitStopped : kExitOk;
}

}  // namespace

void add_compare_command(CLI::App& program, int& exit_code) {
  auto arguments = std::make_shared<CompareArguments>();
  CLI::App* command =
      program.add_subcommand("compare", "Train one recipe with several codecs: one table");
  add_run_arguments(*command, *arguments);
  command
      ->add_option("--codecs", arguments->codecs,
                   "What to compare, separated by semicolons;\n"
                   "else fp32, the recipe's own, and sidco:density=0.01 or adacomp")
      ->type_name("LIST");
  command->callback([arguments, &exit_code] {
    watch_interrupts();
    exit_code = compare(*arguments);
  });
}

}  // namespace thinwire::cli
