// thinwire plan: predicts a step with several codecs over a link, and says whether to compress.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <set>
#include <thread>
#include <utility>

#include "cli/commands.h"
#include "cli/data_option.h"
#include "cli/exit_code.h"
#include "cli/mpirun.h"
#include "cli/plan_table.h"
#include "cli/recipe_file.h"
#include "cli/session.h"
#include "cli/tensor_list.h"
#include "cli/terminal.h"
#include "cli/text.h"
#include "thinwire/recipe_plan.h"

namespace thinwire::cli {
namespace {

struct PlanArguments : RunArguments {
  LinkSpec link;
  bool probes = false;  // the link between mpirun's ranks
  std::optional<int> ranks;
  double step_seconds = 0;  // 0: measured
  int steps = 8;
  std::optional<int> cores;
  std::string codecs;
  std::string costs = usual_cost_file();
  bool json = false;
};

// One of each kind that docs/codecs.md recommends. A method may follow, as in "topk @ gather".
constexpr const char* kUsualCodecs =
    "fp16; bf16; int8; int4; uniform:bits=4; qsgd:levels=7; natural; terngrad; sign; "
    "adacomp:scale_factor=3; topk:density=0.01; topk:density=0.01 @ sparse-reduce; "
    "sidco:density=0.01; dgc:density=0.01; scalecom:density=0.01; powersgd:rank=1; powersgd:rank=4";

struct Candidate {
  std::string text, codec, method;
};

Candidate parse_candidate(const std::string& text) {
  const size_t at = text.find(" @ ");
  return {.text = text,
          .codec = text.substr(0, at),
          .method = at == std::string::npos ? "auto" : text.substr(at + 3)};
}

// fp32 first.
std::vector<Candidate> candidates_of(const std::string& list) {
  std::vector<Candidate> all = {parse_candidate("fp32")};
  for (const std::string& part : split(list, ';'))
    if (const std::string text(trim(part)); !text.empty() && text != "fp32")
      all.push_back(parse_candidate(text));
  return all;
}

// What is planned: a recipe, or a list of tensors.
class Subject {
 public:
  virtual ~Subject() = default;
  virtual std::string name() const = 0;
  virtual int ranks() const = 0;
  virtual std::string measured_by() const = 0;
  virtual StepTimeline timeline() const = 0;
  // Throws Error for a codec that it cannot have.
  virtual ExchangeOptions options(const Candidate& candidate) const = 0;
  virtual bool leaves_a_core() const = 0;
};

int cores_of(const PlanArguments& arguments) {
  return arguments.cores.value_or(static_cast<int>(std::thread::hardware_concurrency()));
}

class PlannedRecipe final : public Subject {
 public:
  explicit PlannedRecipe(const PlanArguments& arguments)
      : arguments_(arguments), recipe_(load_recipe(arguments, "", arguments.ranks)) {}

  std::string name() const override { return recipe_.name; }
  int ranks() const override {
    return arguments_.ranks.value_or(static_cast<int>(recipe_.options.integer("run.workers")));
  }
  std::string measured_by() const override {
    return arguments_.step_seconds > 0 ? "as given"
                                       : fmt::format("median of {} steps here", arguments_.steps);
  }
  StepTimeline timeline() const override {
    const bool given = arguments_.step_seconds > 0;
    StepTimeline timeline =
        recipe_timeline(recipe_, {.data = arguments_.data, .out = {}, .resume = {}}, ranks(),
                        given ? 0 : arguments_.steps);
    return given ? assumed_timeline(timeline.tensors, arguments_.step_seconds) : timeline;
  }
  ExchangeOptions options(const Candidate& candidate) const override {
    RunArguments own = arguments_;
    own.sets.insert(own.sets.end(), {"exchange.method=" + candidate.method,
                                     "exchange.feedback=auto", "exchange.grouping=auto"});
    return recipe_exchange(load_recipe(own, candidate.codec, ranks()));
  }
  bool leaves_a_core() const override {
    const int64_t threads = recipe_.options.integer("run.threads");
    return threads > 0 && threads < cores_of(arguments_);
  }

 private:
  const PlanArguments& arguments_;
  const Recipe recipe_;
};

class PlannedTensors final : public Subject {
 public:
  explicit PlannedTensors(const PlanArguments& arguments)
      : arguments_(arguments),
        tensors_(or_usage_error(
            parse_tensor_list(or_usage_error(read_text(arguments.recipe)), arguments.recipe))) {
    if (arguments.step_seconds <= 0)
      throw UsageError(ErrorCode::kBadOption,
                       "--step-seconds: is needed for a list of tensors: how long a step takes "
                       "without any exchange");
    if (!arguments.sets.empty())
      throw UsageError(ErrorCode::kBadOption, "--set: a list of tensors has no keys");
  }

  std::string name() const override { return arguments_.recipe; }
  int ranks() const override { return arguments_.ranks.value_or(2); }
  std::string measured_by() const override { return "as given"; }
  StepTimeline timeline() const override {
    return assumed_timeline(tensors_, arguments_.step_seconds);
  }
  ExchangeOptions options(const Candidate& candidate) const override {
    ExchangeOptions options{.codec = candidate.codec};
    options.method = candidate.method;
    check_exchange(options).or_throw();
    return options;
  }
  bool leaves_a_core() const override { return cores_of(arguments_) > 1; }

 private:
  const PlanArguments& arguments_;
  const std::vector<TensorSpec> tensors_;
};

std::unique_ptr<Subject> subject_of(const PlanArguments& arguments) {
  if (arguments.recipe.ends_with(".txt")) return std::make_unique<PlannedTensors>(arguments);
  return std::make_unique<PlannedRecipe>(arguments);
}

// Of the usual codecs, those that a recipe cannot have are left out.
std::vector<PlanRow> rows_of(const Subject& subject, const PlanArguments& arguments,
                             const PlanTable& plan, CostTable& costs) {
  const bool chosen = !arguments.codecs.empty();
  std::vector<PlanRow> rows;
  for (const Candidate& candidate : candidates_of(chosen ? arguments.codecs : kUsualCodecs)) {
    PlanRow row{.codec = candidate.text, .options = {}, .step = {}, .accuracy = {}};
    try {
      row.options = subject.options(candidate);
      row.step = predict_step(plan.timeline, row.options, plan.request, costs).value();
      row.accuracy = accuracy_of(candidate.codec);
    } catch (const Error& error) {
      if (!chosen && candidate.text != "fp32") continue;
      throw UsageError(error.code(), error.what());
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

// The rate from which the answer would be another.
double break_even_of(const PlanTable& plan, CostTable& costs) {
  if (!plan.best || plan.request.ranks == 1) return 0;
  return break_even_rate(plan.timeline, plan.rows[*plan.best].options,
                         plan.rows[plan.dense].options, plan.request, costs, kWorthwhile)
      .value();
}

// Measures the link between mpirun's ranks, which are those of the plan. Whether this rank is the one that plans.
bool probe(PlanArguments& arguments) {
  if (!arguments.probes) return true;
  if (!mpirun_world())
    throw UsageError(
        ErrorCode::kBadOption,
        "--link probe: measures the link between the ranks of mpirun, and this process has none: "
        "mpirun -n 2 --host A,B thinwire plan ...; or name a link, as in 1gbit,20ms");
  const std::unique_ptr<Group> group = make_mpi_group().value();
  if (arguments.ranks && *arguments.ranks != group->size())
    throw UsageError(ErrorCode::kBadOption, fmt::format("--ranks: is {}, and mpirun has {} ranks",
                                                        *arguments.ranks, group->size()));
  arguments.link = probe_link(*group);
  arguments.ranks = group->size();
  return group->rank() == 0;
}

void run(PlanArguments& arguments) {
  if (!probe(arguments)) return;
  const auto subject = subject_of(arguments);
  CostTable costs = or_usage_error(read_costs(arguments.costs));
  const size_t known = costs.size();
  PlanTable plan;
  plan.name = subject->name();
  plan.measured_by = subject->measured_by();
  plan.timeline = subject->timeline();
  plan.request = {
      .ranks = subject->ranks(), .link = arguments.link, .own_core = subject->leaves_a_core()};
  plan.rows = rows_of(*subject, arguments, plan, costs);
  plan.processor = costs.processor();
  rank_rows(plan);
  plan.break_even = break_even_of(plan, costs);
  if (costs.size() > known && !arguments.costs.empty())
    if (const Status status = write_costs(arguments.costs, costs); !status)
      fmt::print(stderr, "{}: measured costs are not kept\n", status.message());
  fmt::print("{}", arguments.json ? plan_json(plan) : plan_text(plan));
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
          "Rate of each rank's link, and the latency of one way,\n"
          "as in 1gbit,20ms; none: no limit; probe: under mpirun,\n"
          "what half a second of messages between its ranks shows")
      ->default_str("none")
      ->type_name("RATE[,TIME]");
  command.add_option("--ranks", arguments.ranks, "Else as many as run.workers says, or 2")
      ->check(CLI::Range(1, 4096).description(""))
      ->type_name("N");
  command
      .add_option("--step-seconds", arguments.step_seconds,
                  "Computation of one rank in a step; else it is measured here")
      ->check(CLI::PositiveNumber.description(""))
      ->type_name("S");
  command.add_option("--steps", arguments.steps, "That are measured")
      ->check(CLI::Range(1, 1000).description(""))
      ->capture_default_str()
      ->type_name("N");
  command.add_option("--cores", arguments.cores, "Of each rank; else those of this machine")
      ->check(CLI::Range(1, 1024).description(""))
      ->type_name("N");
  command
      .add_option("--codecs", arguments.codecs,
                  "What to compare with fp32, separated by semicolons, each perhaps\n"
                  "with a method: topk @ gather; else one of each kind")
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
  command->callback([arguments] { run(*arguments); });
}

}  // namespace thinwire::cli
