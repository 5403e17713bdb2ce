// thinwire data: says which data sets are found, and where to get the others.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <memory>

#include "cli/commands.h"
#include "cli/data_option.h"
#include "cli/exit_code.h"
#include "cli/terminal.h"
#include "cli/text.h"
#include "thinwire/trainer.h"

namespace thinwire::cli {
namespace {

// Prints one data set; whether it can be trained on.
bool report(const DataSetInfo& info, const std::string& folder, const Terminal& terminal) {
  const DataSetState state = check_data_set(info.name, folder);
  const std::string verdict = state.ready ? styled(terminal, Style::kGreen, "ready")
                                          : styled(terminal, Style::kYellow, "not ready");
  fmt::print("{}  {}: {}\n", styled(terminal, Style::kBold, fmt::format("{:<14}", info.name)),
             info.about, verdict);
  const auto detail = [](std::string_view label, const std::string& text) {
    fmt::print("{:16}{:<8} {}\n", "", label, text);
  };
  if (!state.folder.empty()) detail("found", state.folder);
  for (const std::string& problem : state.problems) detail("problem", problem);
  detail("from", info.origin);
  detail("terms", info.terms);
  if (!state.ready)
    for (const std::string& file : info.files) detail("put", folder + "/" + file);
  fmt::print("\n");
  return state.ready;
}

}  // namespace

void add_data_command(CLI::App& program, int& exit_code) {
  struct Arguments {
    std::vector<std::string> names;
    std::string folder;
  };
  auto arguments = std::make_shared<Arguments>();
  CLI::App* command =
      program.add_subcommand("data", "Check which data sets are here; say where to get the others");
  command->add_option("NAME", arguments->names,
                      "Only these; exit code 1 unless all of them are ready");
  add_data_option(*command, arguments->folder);
  command->callback([arguments, &exit_code] {
    const auto all = list_data_sets();
    const Terminal terminal = look_at(stdout);
    for (const std::string& name : arguments->names)
      check_data_set(name, arguments->folder);  // an unknown name throws, with the known ones
    for (const DataSetInfo& info : all) {
      const auto& names = arguments->names;
      const bool named = std::find(names.begin(), names.end(), info.name) != names.end();
      if (!names.empty() && !named) continue;
      if (!report(info, arguments->folder, terminal) && named) exit_code = kExitFailed;
    }
  });
}

}  // namespace thinwire::cli
