// Runs the program: reads the command line, prints one line for each mistake or failure, and
// returns the exit code.
// SPDX-License-Identifier: Apache-2.0
#include "cli/program.h"

#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <system_error>

#include "cli/commands.h"
#include "cli/exit_code.h"
#include "cli/kept_memory.h"
#include "cli/mpirun.h"
#include "cli/terminal.h"
#include "cli/text.h"
#include "thinwire/status.h"
#include "thinwire/version.h"

namespace thinwire::cli {
namespace {

constexpr const char* kFooter =
    "Exit codes: 0 done; 1 the run failed; 2 the command line or the recipe is wrong;\n"
    "130 stopped by Ctrl-C or SIGTERM (the first stops after the step, with a checkpoint\n"
    "where --out was given; the second ends at once).\n"
    "NO_COLOR turns colours off; THINWIRE_DATA names the data folder when --data does not.\n";

void complain(std::string_view message) {
  const auto world = mpirun_world();
  for (const std::string& line : split(message, '\n'))
    fmt::print(stderr, "{} {}{}\n", styled(look_at(stderr), Style::kRed, "thinwire:"),
               world ? fmt::format("rank {}: ", world->rank) : "", line);
}

// Wrong names and values are the user's, the rest is the run's.
int exit_code_of(const Error& error) {
  const bool usage = dynamic_cast<const UsageError*>(&error) != nullptr ||
                     error.code() == ErrorCode::kUnknownName ||
                     error.code() == ErrorCode::kBadOption;
  return usage ? kExitUsage : kExitFailed;
}

// What CLI11 could not place: the first of it that looks like an option, or else the first.
std::string unexpected(const CLI::App& command) {
  const std::vector<std::string> rest = command.remaining(/*recurse=*/true);
  const auto option = std::find_if(rest.begin(), rest.end(),
                                   [](const std::string& text) { return text.starts_with("-"); });
  if (option == rest.end()) return fmt::format("unexpected argument '{}'", rest.front());
  std::vector<std::string> known;
  for (const CLI::Option* row : command.get_options()) known.push_back(row->get_name());
  return fmt::format("unknown option '{}'{}", *option, did_you_mean(*option, known));
}

std::string usage_error(const CLI::App& program, const CLI::Error& error, int argc, char** argv) {
  const auto chosen = program.get_subcommands();
  const std::string see =
      fmt::format(" (see thinwire {}--help)", chosen.empty() ? "" : chosen[0]->get_name() + " ");
  if (chosen.empty() && argc > 1 && argv[1][0] != '-') {
    std::vector<std::string> names;
    for (const CLI::App* command : program.get_subcommands({}))
      names.push_back(command->get_name());
    return fmt::format("unknown command '{}'{}{}", argv[1], did_you_mean(argv[1], names), see);
  }
  if (!program.remaining(/*recurse=*/true).empty())
    return unexpected(chosen.empty() ? program : *chosen[0]) + see;
  return std::string(first_line(error.what())) + see;
}

// A file that is opened must not get the number of a standard stream that the caller closed: what
// is printed would land in it. What stands in their place here fails when it is used.
void hold_standard_streams() {
  for (int stream = STDIN_FILENO; stream <= STDERR_FILENO; ++stream)
    if (fcntl(stream, F_GETFD) < 0 &&
        open("/dev/null", stream == STDIN_FILENO ? O_WRONLY : O_RDONLY) < 0)
      return;
}

// Where printing fails in mid-command, `output_error` receives its errno, and nothing is said about
// it.
int run_command(int argc, char** argv, int& output_error) {
  CLI::App program("Trains neural networks across thin links.", "thinwire");
  int exit_code = kExitOk;
  program.set_version_flag("--version", "thinwire " THINWIRE_VERSION);
  program.require_subcommand(1);
  program.get_formatter()->column_width(32);
  program.footer(kFooter);
  add_train_command(program, exit_code);
  add_compare_command(program, exit_code);
  add_sweep_command(program, exit_code);
  add_watch_command(program, exit_code);
  add_report_command(program, exit_code);
  add_measure_command(program, exit_code);
  add_plan_command(program, exit_code);
  add_codecs_command(program, exit_code);
  add_checkpoint_command(program, exit_code);
  add_influence_command(program, exit_code);
  add_factor_command(program, exit_code);
  add_data_command(program, exit_code);
  if (argc < 2) {
    fmt::print(stderr, "{}", program.help());
    return kExitUsage;
  }
  try {
    program.parse(argc, argv);
  } catch (const CLI::Success& help) {
    return program.exit(help);
  } catch (const CLI::Error& error) {
    complain(usage_error(program, error, argc, argv));
    return kExitUsage;
  } catch (const Error& error) {
    complain(error.what());
    return exit_code_of(error);
  } catch (const std::system_error& error) {
    if (std::ferror(stdout) == 0)
      complain(first_line(error.what()));
    else
      output_error = error.code().value();
    return kExitFailed;
  } catch (const std::exception& error) {
    complain(first_line(error.what()));
    return kExitFailed;
  }
  return exit_code;
}

}  // namespace

int run_program(int argc, char** argv) {
  hold_standard_streams();
  keep_freed_memory();
  int output_error = 0;
  const int code = run_command(argc, argv, output_error);
  if (std::fflush(stdout) != 0) output_error = errno;
  if (output_error == 0 && std::ferror(stdout) == 0) return code;
  complain(fmt::format("standard output cannot be written{}{}", output_error == 0 ? "" : ": ",
                       output_error == 0 ? "" : std::strerror(output_error)));
  return code == kExitOk ? kExitFailed : code;
}

}  // namespace thinwire::cli
