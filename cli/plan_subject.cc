// Recipes and lists of tensors whose workers share each step, or step by themselves.
// SPDX-License-Identifier: Apache-2.0
#include "cli/plan_subject.h"

#include <fmt/format.h>

#include <thread>
#include <utility>

#include "cli/exit_code.h"
#include "cli/recipe_file.h"
#include "cli/tensor_list.h"
#include "thinwire/codec_and_method.h"
#include "thinwire/local_plan.h"
#include "thinwire/recipe_plan.h"

namespace thinwire::cli {
namespace {

// Steps of a recipe or a list that ranks share, or that are followed by rounds.
class SharedOrLocal : public PlanSubject {
 public:
  std::string way() const override {
    return sync_.method.empty() ? "" : "local method " + sync_.method;
  }
  const StepTimeline& timeline() const override { return timeline_; }

  StepPrediction predict(const std::string& codec, const PlanRequest& request,
                         CostTable& costs) const override {
    const CodecAndMethod candidate = codec_and_method(codec);
    if (sync_.method.empty())
      return predict_step(timeline_, exchange(candidate, request.per_machine), request, costs)
          .value();
    SynchroniserOptions rounds = sync_;
    rounds.codec = candidate.codec;
    rounds.exchange = candidate.method;
    rounds.feedback = "auto";
    return predict_local_steps(timeline_, rounds, request, costs).value();
  }

  double break_even(const std::string& codec, const PlanRequest& request, CostTable& costs,
                    double speed_up) const override {
    if (!sync_.method.empty()) return PlanSubject::break_even(codec, request, costs, speed_up);
    const auto of = [&](const std::string& text) {
      return exchange(codec_and_method(text), request.per_machine);
    };
    return break_even_rate(timeline_, of(codec), of("fp32"), request, costs, speed_up).value();
  }

  std::optional<StepPrediction> predict_flat(const std::string& codec, const PlanRequest& request,
                                             CostTable& costs) const override {
    if (request.per_machine == 1 || !sync_.method.empty()) return std::nullopt;
    return predict_step(timeline_, exchange(codec_and_method(codec), 1), request, costs).value();
  }

  std::vector<std::string> notes() const override {
    if (sync_.method.empty()) return {};
    return {"Times and bytes are means over steps, of which some are followed by a round, when all",
            "workers wait; the longest step is one of these. How well the network learns with such",
            "rounds depends on the method: docs/leader-sgd.md."};
  }
  bool has_known_accuracy() const override { return sync_.method.empty(); }

 protected:
  virtual ExchangeOptions exchange(const CodecAndMethod& candidate, int inside) const = 0;

  SynchroniserOptions sync_ = {.method = ""};  // without a method: ranks share each step
  StepTimeline timeline_;
};

int ranks_per_machine(const PlanArguments& arguments, const Recipe& recipe) {
  return arguments.per_machine.value_or(
      static_cast<int>(recipe.options.integer("exchange.inside")));
}

// Before anything is measured.
void require_machines(const PlanArguments& arguments, int per_machine) {
  if (arguments.inside && per_machine == 1)
    throw UsageError(
        ErrorCode::kBadOption,
        "--inside-link: is the link between ranks of one machine, and each machine has "
        "one rank; give --per-machine, 2 or more, too");
}

class PlannedRecipe final : public SharedOrLocal {
 public:
  PlannedRecipe(const PlanArguments& arguments, Recipe recipe, int ranks, int64_t threads)
      : arguments_(arguments), recipe_(std::move(recipe)), ranks_(ranks), threads_(threads) {
    sync_ = recipe_synchroniser(recipe_);
    const bool given = arguments.step_seconds > 0;
    timeline_ = recipe_timeline(recipe_, {.data = arguments.data, .out = {}, .resume = {}}, ranks,
                                given ? 0 : arguments.steps);
    if (given) timeline_ = assumed_timeline(timeline_.tensors, arguments.step_seconds);
  }

  std::string name() const override { return recipe_.name; }
  std::string measured_by() const override {
    return arguments_.step_seconds > 0 ? "as given"
                                       : fmt::format("median of {} steps here", arguments_.steps);
  }
  PlanRequest request() const override {
    const int here = ranks_per_machine(arguments_, recipe_);
    return request_of(arguments_, ranks_, here, leaves_a_core(arguments_, threads_, here));
  }

 private:
  ExchangeOptions exchange(const CodecAndMethod& candidate, int inside) const override {
    RunArguments own = arguments_;
    own.sets.insert(own.sets.end(),
                    {"exchange.method=" + candidate.method, "exchange.feedback=auto",
                     "exchange.grouping=auto", "exchange.inside=" + std::to_string(inside),
                     // not parts of a plan, and refused with fp32
                     "exchange.flush=off", "optimizer.second_moment=mean"});
    return recipe_exchange(load_recipe(own, candidate.codec, ranks_));
  }

  const PlanArguments& arguments_;
  const Recipe recipe_;
  const int ranks_;
  const int64_t threads_;  // that the caller gave a rank; 0: none
};

class PlannedTensors final : public SharedOrLocal {
 public:
  PlannedTensors(const PlanArguments& arguments, int ranks) : arguments_(arguments), ranks_(ranks) {
    const auto tensors = or_usage_error(
        parse_tensor_list(or_usage_error(read_text(arguments.recipe)), arguments.recipe));
    if (arguments.step_seconds <= 0)
      throw UsageError(ErrorCode::kBadOption,
                       "--step-seconds: is needed for a list of tensors: how long a step takes "
                       "without any exchange");
    if (!arguments.sets.empty())
      throw UsageError(ErrorCode::kBadOption, "--set: a list of tensors has no keys");
    if (!arguments.of_recipes.empty())
      throw UsageError(ErrorCode::kBadOption,
                       arguments.of_recipes.front() +
                           ": a list of tensors has no steps that could be measured; leave it out, "
                           "or name a recipe");
    require_machines(arguments, arguments.per_machine.value_or(1));
    sync_.method = arguments.sync;
    timeline_ = assumed_timeline(tensors, arguments.step_seconds);
  }

  std::string name() const override { return arguments_.recipe; }
  std::string measured_by() const override { return "as given"; }
  PlanRequest request() const override {
    const int here = arguments_.per_machine.value_or(1);
    return request_of(arguments_, ranks_, here, cores_of(arguments_) > here);
  }

 private:
  ExchangeOptions exchange(const CodecAndMethod& candidate, int inside) const override {
    ExchangeOptions options{.codec = candidate.codec};
    options.method = candidate.method;
    options.inside = inside;
    check_exchange(options).or_throw();
    return options;
  }

  const PlanArguments& arguments_;
  const int ranks_;
};

}  // namespace

// One of each kind that docs/codecs.md recommends.
std::string PlanSubject::usual_codecs() const {
  return "fp16; bf16; int8; int4; uniform:bits=4; qsgd:levels=7; natural; terngrad; sign; "
         "adacomp:scale_factor=3; topk:density=0.01; topk:density=0.01 @ sparse-reduce; "
         "sidco:density=0.01; dgc:density=0.01; scalecom:density=0.01; powersgd:rank=1; "
         "powersgd:rank=4";
}

double PlanSubject::break_even(const std::string& codec, const PlanRequest& request,
                               CostTable& costs, double speed_up) const {
  return break_even_rate([&](double rate) {
    PlanRequest at = request;
    at.link.bits_per_second = rate;
    return speed_up * predict(codec, at, costs).seconds < predict("fp32", at, costs).seconds;
  });
}

std::optional<StepPrediction> PlanSubject::predict_flat(const std::string& /*codec*/,
                                                        const PlanRequest& /*request*/,
                                                        CostTable& /*costs*/) const {
  return std::nullopt;
}

int cores_of(const PlanArguments& arguments) {
  return arguments.cores.value_or(static_cast<int>(std::thread::hardware_concurrency()));
}

bool leaves_a_core(const PlanArguments& arguments, int64_t threads, int per_machine) {
  return threads > 0 && threads * per_machine < cores_of(arguments);
}

PlanRequest request_of(const PlanArguments& arguments, int ranks, int per_machine, bool own_core) {
  if (ranks % per_machine != 0)
    throw UsageError(ErrorCode::kBadOption,
                     fmt::format("--per-machine: machines of {} ranks do not make up {} ranks",
                                 per_machine, ranks));
  LinkSpec link = arguments.link;
  if (arguments.probes) link.bits_per_second *= per_machine;  // all its ranks were probed at once
  return {.ranks = ranks,
          .link = link,
          .own_core = own_core,
          .per_machine = per_machine,
          .inside = arguments.inside.value_or(LinkSpec{})};
}

std::unique_ptr<PlanSubject> make_plan_subject(const PlanArguments& arguments,
                                               std::optional<int> ranks) {
  if (arguments.recipe.ends_with(".txt"))
    return std::make_unique<PlannedTensors>(arguments, ranks.value_or(2));
  RunArguments own = arguments;
  if (!arguments.sync.empty()) own.sets.push_back("sync.method=" + arguments.sync);
  Recipe recipe = load_recipe(own, "", ranks);
  const bool staged = recipe.options.integer("pipeline.stages") > 0;
  require_machines(
      arguments, staged ? arguments.per_machine.value_or(1) : ranks_per_machine(arguments, recipe));
  // Computation is measured with the threads that a rank has among those of its machine. A run has
  // as many as it likes where nobody says how many, so that leaves the exchange no core.
  const int64_t threads = recipe.options.integer("run.threads");
  if (const int here = ranks_per_machine(arguments, recipe); here > 1 && threads == 0) {
    own.sets.push_back("run.threads=" + std::to_string(std::max(1, cores_of(arguments) / here)));
    recipe = load_recipe(own, "", ranks);
  }
  const int count = ranks.value_or(static_cast<int>(recipe.options.integer("run.workers")));
  if (recipe.options.integer("tensor.ranks") > 0)
    throw UsageError(ErrorCode::kUnsupported,
                     "plan: predicts exchanges, rounds and pipelines, and no tensor parallelism; "
                     "without the sums inside layers: --set tensor.ranks=0");
  if (staged) return make_pipeline_subject(arguments, std::move(recipe), count, threads);
  return std::make_unique<PlannedRecipe>(arguments, std::move(recipe), count, threads);
}

}  // namespace thinwire::cli
