// thinwire codecs: lists codecs with their properties and options.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/exit_code.h"
#include "cli/option_text.h"
#include "cli/terminal.h"
#include "thinwire/auto_codec.h"
#include "thinwire/codec.h"

namespace thinwire::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kIndent = 12;

Json to_json(const OptionInfo& option) {
  Json json = {{"name", option.name},
               {"type", type_name(option.type)},
               {"default", option.fallback},
               {"unit", option.unit},
               {"help", option.help}};
  if (option.min > -1e300) json["min"] = option.min;
  if (option.max < 1e300) json["max"] = option.max;
  if (option.type == OptionType::kChoice) json["choices"] = option.choices;
  return json;
}

// With its defaults: what a codec promises may hang on its options, and an entry speaks of none.
CodecInfo info_of(const CodecEntry& entry) {
  return make_codec(entry.info.name).value().codec->info();
}

Json to_json(const CodecEntry& entry) {
  const CodecInfo info = info_of(entry);
  Json json = {{"name", info.name},
               {"id", info.id},
               {"summary", info.summary},
               {"paper", info.paper},
               {"unbiased", info.unbiased},
               {"lossless", info.lossless},
               {"linear", info.linear},
               {"fixed_size", info.fixed_size},
               {"block", info.block},
               {"grouping", to_string(info.grouping)},
               {"global_threshold", info.global_threshold},
               {"agreed", to_string(info.agreed)},
               {"options", Json::array()}};
  for (const OptionInfo& option : entry.options) json["options"].push_back(to_json(option));
  return json;
}

void print_text(const Terminal& terminal) {
  for (const CodecEntry* entry : list_codecs()) {
    const CodecInfo info = info_of(*entry);
    fmt::print("{}  {}\n", styled(terminal, Style::kBold, fmt::format("{:<10}", info.name)),
               info.summary);
    const auto detail = [&](const std::string& text) {
      fmt::print("{:{}}{}\n", "", kIndent, text);
    };
    if (!info.paper.empty()) detail(styled(terminal, Style::kFaint, info.paper));
    std::string kind = fmt::format("id {}, ", info.id);
    kind += info.lossless           ? "lossless"
            : info.unbiased         ? "unbiased"
            : info.linear           ? "rounds: keeps no residual"
            : info.feedback.empty() ? "biased: keeps a residual"
                                    : fmt::format("biased: memory {}", info.feedback);
    kind += is_one_stream(info.grouping) ? ", the whole model as one vector"
                                         : ", each weight tensor on its own";
    if (info.global_threshold) kind += ", or by one threshold for all tensors";
    if (info.agreed != Agreed::kNothing)
      kind += fmt::format(", ranks agree on {}", to_string(info.agreed));
    detail(kind);
    fmt::print("{}\n", describe_options(entry->options, Detail::kRanges, kIndent, terminal));
  }
  fmt::print("Write a codec as name or name:key=value,key=value, as in {}.\n",
             "--set exchange.codec=sidco:density=0.01");
}

}  // namespace

void add_codecs_command(CLI::App& program, int& /*exit_code*/) {
  auto json = std::make_shared<bool>(false);
  auto loss = std::make_shared<std::string>();
  CLI::App* command = program.add_subcommand("codecs", "List the codecs and their options");
  command->add_flag("--json", *json, "As JSON, for programs");
  command
      ->add_option("--auto", *loss,
                   "What codec auto:loss=LOSS chooses from, a line each:\n"
                   "none, small or any")
      ->type_name("LOSS");
  command->callback([json, loss] {
    if (!loss->empty()) {
      const AutoCodec codec = or_usage_error(parse_auto("auto:loss=" + *loss));
      for (const std::string& text : auto_candidates(codec.loss)) fmt::print("{}\n", text);
      return;
    }
    if (!*json) return print_text(look_at(stdout));
    Json all = Json::array();
    for (const CodecEntry* entry : list_codecs()) all.push_back(to_json(*entry));
    fmt::print("{}\n", all.dump(2));
  });
}

}  // namespace thinwire::cli
