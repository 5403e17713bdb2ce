// thinwire plan: predicts a step with several codecs over a link, and says whether to compress.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cli/commands.h"
#include "cli/data_option.h"
#include "cli/exit_code.h"
#include "cli/mpirun.h"
#include "cli/number_check.h"
#include "cli/plan_subject.h"
#include "cli/plan_table.h"
#include "cli/text.h"
#include "thinwire/codec_and_method.h"
#include "thinwire/trainer.h"

namespace thinwire::cli {
namespace {

// fp32 first.
std::vector<std::string> candidates_of(const std::string& list) {
  std::vector<std::string> all = {"fp32"};
  for (std::string& codec : split_codecs(list))
    if (codec != "fp32") all.push_back(std::move(codec));
  return all;
}

// Of the usual codecs, those that the subject cannot have are left out.
std::vector<PlanRow> rows_of(const PlanSubject& subject, const PlanArguments& arguments,
                             const PlanRequest& request, CostTable& costs) {
  const bool chosen = !arguments.codecs.empty();
  std::vector<PlanRow> rows;
  for (const std::string& codec :
       candidates_of(chosen ? arguments.codecs : subject.usual_codecs())) {
    PlanRow row{.codec = codec, .step = {}, .accuracy = {}};
    try {
      row.step = subject.predict(codec, request, costs);
      if (subject.has_known_accuracy()) {
        const std::string name = codec_and_method(codec).codec;
        row.accuracy = accuracy_of(name);
        row.wants_short_trial = wants_short_trial(name);
      }
    } catch (const Error& error) {
      if (!chosen && codec != "fp32") continue;
      throw UsageError(error.code(), error.what());
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

// The rate from which the answer would be another.
double break_even_of(const PlanSubject& subject, const PlanTable& plan, CostTable& costs) {
  if (!plan.best || plan.request.ranks == 1) return 0;
  PlanRequest request = plan.request;
  if (plan.way.empty()) request.copy_seconds_per_byte = costs.copies();
  return subject.break_even(plan.rows[*plan.best].codec, request, costs, kWorthwhile);
}

std::optional<FlatSteps> flat_of(const PlanSubject& subject, const PlanTable& plan,
                                 CostTable& costs) {
  const auto dense = subject.predict_flat("fp32", plan.request, costs);
  if (!dense) return std::nullopt;
  FlatSteps flat{.dense = dense->seconds, .best = {}};
  if (plan.best)
    flat.best = subject.predict_flat(plan.rows[*plan.best].codec, plan.request, costs)->seconds;
  return flat;
}

// Measures the link between mpirun's ranks, which are those of the plan. Whether this rank is the
// one that plans.
bool probe(PlanArguments& arguments) {
  if (!arguments.probes) return true;
  if (!mpirun_world())
    throw UsageError(
        ErrorCode::kBadOption,
        "--link probe: measures the link between the ranks of mpirun, and this process has none: "
        "mpirun -n 2 --host A,B thinwire plan ...; or name a link, as in 1gbit,20ms");
  const std::unique_ptr<Group> group = make_mpi_group().value();
  for (const int ranks : arguments.ranks)
    if (ranks != group->size())
      throw UsageError(ErrorCode::kBadOption, fmt::format("--ranks: is {}, and mpirun has {} ranks",
                                                          ranks, group->size()));
  const ProbedLink found = probe_link(*group);
  arguments.link = found;
  arguments.at_least = found.at_least;
  arguments.ranks = {group->size()};
  return group->rank() == 0;
}

PlanTable plan_for(const PlanArguments& arguments, std::optional<int> ranks, CostTable& costs) {
  const auto subject = make_plan_subject(arguments, ranks);
  PlanTable plan;
  plan.name = subject->name();
  plan.way = subject->way();
  plan.measured_by = subject->measured_by();
  plan.timeline = subject->timeline();
  plan.request = subject->request();
  // Rounds and stages are played without copies (PlanRequest).
  if (plan.way.empty() && plan.request.link.bits_per_second > 0)
    plan.request.copy_seconds_per_byte = costs.copies();
  plan.notes = subject->notes();
  if (arguments.at_least)
    plan.notes.emplace_back(
        "The probe had too little time for a link of this latency: its rate may be higher. Name\n"
        "the link, as in 1gbit,20ms, if you know it.");
  plan.rows = rows_of(*subject, arguments, plan.request, costs);
  plan.processor = costs.processor();
  rank_rows(plan);
  if (arguments.ranks.size() > 1) return plan;
  plan.break_even = break_even_of(*subject, plan, costs);
  plan.flat = flat_of(*subject, plan, costs);
  return plan;
}

void run(PlanArguments& arguments) {
  if (!probe(arguments)) return;
  if (!arguments.costs.empty()) protect_saved_files(arguments.costs);
  CostTable costs = or_usage_error(read_costs(arguments.costs));
  const size_t known = costs.size();
  std::vector<PlanTable> plans;
  for (const int ranks : arguments.ranks) plans.push_back(plan_for(arguments, ranks, costs));
  if (plans.empty()) plans.push_back(plan_for(arguments, {}, costs));
  if (costs.size() > known && !arguments.costs.empty())
    if (const Status status = write_costs(arguments.costs, costs); !status)
      fmt::print(stderr, "{}: measured costs are not kept\n", status.message());
  if (plans.size() > 1)
    fmt::print("{}", arguments.json ? scale_json(plans) : scale_text(plans));
  else
    fmt::print("{}", arguments.json ? plan_json(plans.front()) : plan_text(plans.front()));
}

void add_options(CLI::App& command, PlanArguments& arguments) {
  command
      .add_option("RECIPE", arguments.recipe,
                  "A TOML file, the name of a shipped recipe, or a .txt file\n"
                  "with a line for each tensor: its name and shape (64x3x7x7)")
      ->required();
  command
      .add_option_function<std::string>(
          "--link",
          [&arguments](const std::string& text) {
            arguments.probes = text == "probe";
            if (!arguments.probes) arguments.link = or_usage_error(parse_link(text));
          },
          "Rate of a machine's link, which its ranks share, and the latency\n"
          "of one way, as in 1gbit,20ms; none: no limit; probe: under mpirun,\n"
          "what half a second of messages between its ranks shows")
      ->default_str("none")
      ->type_name("RATE[,TIME]");
  command
      .add_option("--ranks", arguments.ranks,
                  "Else as many as run.workers says, or 2; several numbers,\n"
                  "as in 2,16,128: times and bytes for each of them")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(whole_number(1, 4096))
      ->type_name("N");
  command
      .add_option("--per-machine", arguments.per_machine,
                  "Consecutive ranks that share a machine and its link. They add\n"
                  "their gradients inside (exchange.inside) before machines exchange;\n"
                  "else as many as exchange.inside says, or 1")
      ->check(whole_number(1, 4096))
      ->type_name("N");
  command
      .add_option_function<std::string>(
          "--inside-link",
          [&arguments](const std::string& text) {
            arguments.inside = or_usage_error(parse_link(text));
          },
          "The same, of each rank's link to the others of its machine")
      ->default_str("none")
      ->type_name("RATE[,TIME]");
  command
      .add_option("--sync", arguments.sync,
                  "The local method (sync.method), as in diloco:tau=500: workers\n"
                  "step by themselves, and communicate in rounds")
      ->type_name("METHOD");
  command
      .add_option("--step-seconds", arguments.step_seconds,
                  "Computation of one rank in a step; else it is measured here")
      ->check(positive_number())
      ->type_name("S");
  command.add_option("--steps", arguments.steps, "Steps that are measured")
      ->check(whole_number(1, 1000))
      ->capture_default_str()
      ->type_name("N");
  command
      .add_option("--cores", arguments.cores,
                  "Cores of each machine; else as many as this machine has")
      ->check(whole_number(1, 1024))
      ->type_name("N");
  command
      .add_option("--codecs", arguments.codecs,
                  "What to compare with fp32, separated by semicolons, each perhaps\n"
                  "with a method: topk @ gather; of pipelines, perhaps one for\n"
                  "activations and one for gradients: fp16 + int8;\n"
                  "else one of each kind")
      ->type_name("LIST");
  command
      .add_option("--costs", arguments.costs,
                  "File that keeps what codecs cost on this machine;\n"
                  "else ~/.cache/thinwire/costs.txt")
      ->type_name("FILE");
  add_data_option(command, arguments.data);
  command.add_option("--set", arguments.sets, "Change a key of the recipe; may be repeated")
      ->allow_extra_args(false)
      ->type_name("KEY=VALUE");
  command.add_flag("--json", arguments.json, "As JSON, for programs");
}

}  // namespace

void add_plan_command(CLI::App& program, int& /*exit_code*/) {
  auto arguments = std::make_shared<PlanArguments>();
  CLI::App* command =
      program.add_subcommand("plan", "Predict a step with several codecs over a link: one table");
  add_options(*command, *arguments);
  command->callback([arguments, command] {
    if (command->count("--steps") > 0) arguments->of_recipes.emplace_back("--steps");
    if (gave_data(*command)) arguments->of_recipes.emplace_back("--data");
    run(*arguments);
  });
}

}  // namespace thinwire::cli
