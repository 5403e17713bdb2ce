// thinwire checkpoint expand: the weights of a small checkpoint as safetensors.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <cstdio>
#include <memory>
#include <string>

#include "cli/commands.h"
#include "thinwire/trainer.h"

namespace thinwire::cli {

void add_checkpoint_command(CLI::App& program, int& /*exit_code*/) {
  struct Arguments {
    std::string from;
    std::string to = "model.safetensors";
  };
  auto arguments = std::make_shared<Arguments>();
  CLI::App* command =
      program.add_subcommand("checkpoint", "Write a checkpoint's weights as a file");
  command->require_subcommand(1);
  CLI::App* expand = command->add_subcommand(
      "expand", "Write the weights of a checkpoint, small or exact, as safetensors");
  expand
      ->add_option("FROM", arguments->from,
                   "A run's folder (its model.safetensors if it has one, else its newest "
                   "checkpoint), a checkpoint's folder, or a file in one")
      ->required();
  expand
      ->add_option("--out", arguments->to,
                   "The file to write; in a run's or a checkpoint's folder a name other than "
                   "model.safetensors")
      ->type_name("FILE")
      ->capture_default_str();
  expand->callback([arguments] {
    const ExpandedModel model = expand_checkpoint(arguments->from, arguments->to);
    fmt::print("{}: {} arrays of {}, {} bytes there, {} here ({:.1f}x)\n", arguments->to,
               model.arrays, model.from, model.saved_bytes, model.expanded_bytes,
               static_cast<double>(model.expanded_bytes) /
                   static_cast<double>(model.saved_bytes > 0 ? model.saved_bytes : 1));
  });
}

}  // namespace thinwire::cli
