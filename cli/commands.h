// The subcommands. Each adds itself to the program and leaves its exit code behind.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <CLI/CLI.hpp>

namespace thinwire::cli {

void add_train_command(CLI::App& program, int& exit_code);
void add_compare_command(CLI::App& program, int& exit_code);
void add_sweep_command(CLI::App& program, int& exit_code);
void add_plan_command(CLI::App& program, int& exit_code);
void add_codecs_command(CLI::App& program, int& exit_code);
void add_measure_command(CLI::App& program, int& exit_code);
void add_report_command(CLI::App& program, int& exit_code);
void add_watch_command(CLI::App& program, int& exit_code);
void add_checkpoint_command(CLI::App& program, int& exit_code);
void add_influence_command(CLI::App& program, int& exit_code);
void add_factor_command(CLI::App& program, int& exit_code);
void add_data_command(CLI::App& program, int& exit_code);

}  // namespace thinwire::cli
