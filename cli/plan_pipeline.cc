// Recipes with stages: what crosses the cuts is compressed by each candidate in turn.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "cli/plan_subject.h"
#include "cli/text.h"
#include "thinwire/recipe_plan.h"

namespace thinwire::cli {
namespace {

constexpr std::string_view kAsWritten = "as in the recipe";

class PlannedStages final : public PlanSubject {
 public:
  PlannedStages(const PlanArguments& arguments, Recipe recipe, int ranks, int64_t threads)
      : arguments_(arguments),
        recipe_(std::move(recipe)),
        ranks_(ranks),
        threads_(threads),
        pipeline_(recipe_pipeline(recipe_, {.data = arguments.data, .out = {}, .resume = {}}, ranks,
                                  arguments.step_seconds > 0 ? 0 : arguments.steps)) {
    // The time given is that of one rank, which has one stage: of each micro-batch a pass forward
    // and one backward.
    const double pass = arguments.step_seconds / (3 * static_cast<double>(pipeline_.micro_batches));
    for (PlannedStage& stage : pipeline_.stages) {
      if (arguments.step_seconds > 0) {
        stage.forward_seconds = pass;
        stage.backward_seconds = 2 * pass;
      }
      timeline_.tensors.insert(timeline_.tensors.end(), stage.tensors.begin(), stage.tensors.end());
    }
    timeline_.compute_seconds = free_seconds();
  }

  std::string name() const override { return recipe_.name; }
  std::string way() const override {
    return fmt::format("{} of {}{} stages, {} micro-batch{}{}",
                       count_of_pipelines() == 1
                           ? "a pipeline"
                           : fmt::format("{} pipelines", count_of_pipelines()),
                       pipeline_.stages.size(), decoupled() ? " decoupled" : "",
                       pipeline_.micro_batches, pipeline_.micro_batches == 1 ? "" : "es",
                       decoupled() ? "" : " in order " + pipeline_.order);
  }
  std::string measured_by() const override {
    return arguments_.step_seconds > 0 ? "as given, the same for each stage"
                                       : fmt::format("median of {} steps here", arguments_.steps);
  }
  PlanRequest request() const override {
    const int here = arguments_.per_machine.value_or(1);
    return request_of(arguments_, ranks_, here, leaves_a_core(arguments_, threads_, here));
  }
  const StepTimeline& timeline() const override { return timeline_; }
  std::string usual_codecs() const override {
    return std::string(kAsWritten) +
           "; fp16; bf16; int8; uniform:bits=8,block=tensor; "
           "uniform:bits=4,block=tensor + uniform:bits=8,block=tensor; topk:density=0.1";
  }

  StepPrediction predict(const std::string& codec, const PlanRequest& request,
                         CostTable& costs) const override {
    return predict_pipeline(codec == kAsWritten ? pipeline_ : with_codec(codec), request, costs)
        .value()
        .step;
  }

  std::vector<std::string> notes() const override {
    std::vector<std::string> lines = {
        "A codec is that of activations and of their gradients; CODEC + CODEC are one for each. "
        "The",
        "memories of boundaries are those of the recipe where it is played as written, else none."};
    if (recipe_.options.text("pipeline.autoencoder") != "none")
      lines.push_back("With every codec, what crosses are the codes of pipeline.autoencoder.");
    if (decoupled())
      lines.push_back(
          "The step is decoupled; for one of a serial epoch: --set pipeline.schedule=synchronous.");
    if (count_of_pipelines() > 1)
      lines.push_back("Pipelines exchange gradients with " + pipeline_.exchange.codec + ".");
    return lines;
  }
  bool has_known_accuracy() const override { return false; }

 private:
  bool decoupled() const { return pipeline_.order == "decoupled"; }
  size_t count_of_pipelines() const {
    return static_cast<size_t>(ranks_) / pipeline_.stages.size();
  }

  PlannedPipeline with_codec(const std::string& text) const {
    const size_t plus = text.find(" + ");
    const std::string forward = text.substr(0, plus);
    const std::string backward = plus == std::string::npos ? forward : text.substr(plus + 3);
    PlannedPipeline changed = pipeline_;
    for (PlannedCut& cut : changed.cuts) {
      cut.forward.codec = forward;
      cut.backward.codec = backward;
      cut.forward.memory = cut.backward.memory = "none";
      cut.forward.note_positions = cut.backward.at_positions = nullptr;
    }
    return changed;
  }

  // Of a step over links without limits.
  double free_seconds() const {
    CostTable costs;
    PlanRequest free = request();
    free.link = free.inside = {};
    costs.set({.codec = "fp32", .feedback = "none"}, {});
    PlannedPipeline alone = with_codec("fp32");
    alone.exchange = {.codec = "fp32"};
    return predict_pipeline(alone, free, costs).value().step.compute_seconds;
  }

  const PlanArguments& arguments_;
  const Recipe recipe_;
  const int ranks_;
  const int64_t threads_;  // that the caller gave a rank; 0: none
  PlannedPipeline pipeline_;
  StepTimeline timeline_;
};

}  // namespace

std::unique_ptr<PlanSubject> make_pipeline_subject(const PlanArguments& arguments, Recipe recipe,
                                                   int ranks, int64_t threads) {
  return std::make_unique<PlannedStages>(arguments, std::move(recipe), ranks, threads);
}

}  // namespace thinwire::cli
