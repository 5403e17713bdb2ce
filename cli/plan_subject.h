// What thinwire plan predicts steps of: a recipe, or a list of tensors, trained in one of three
// ways.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/session.h"
#include "thinwire/codec_and_method.h"
#include "thinwire/step_plan.h"

namespace thinwire::cli {

struct PlanArguments : RunArguments {
  LinkSpec link;
  bool probes = false;             // the link between mpirun's ranks
  bool at_least = false;           // its rate: the probe did not find more
  std::optional<LinkSpec> inside;  // of ranks on one machine; none: no limit
  std::optional<int> per_machine;
  std::vector<int> ranks;   // a plan for each; empty: as many as the recipe says, or 2
  double step_seconds = 0;  // 0: measured
  int steps = 8;
  std::vector<std::string> of_recipes;  // options that were given and say nothing of a list
  std::optional<int> cores;
  std::string sync;  // the local method, in place of the recipe's
  std::string codecs;
  std::string costs = usual_cost_file();
  bool json = false;
};

// One number of ranks. Times are measured by the constructor.
class PlanSubject {
 public:
  virtual ~PlanSubject() = default;

  virtual std::string name() const = 0;
  virtual std::string way() const {
    return "";
  }  // "local method diloco:tau=500"; ordinary steps: none
  virtual std::string measured_by() const = 0;
  virtual PlanRequest request() const = 0;
  virtual const StepTimeline& timeline() const = 0;
  virtual std::string usual_codecs() const;  // separated by semicolons; fp32 is always one

  // Throws Error for a codec that it cannot have.
  virtual StepPrediction predict(const std::string& codec, const PlanRequest& request,
                                 CostTable& costs) const = 0;
  // The rate below which the codec is `speed_up` times as fast as fp32, as break_even_rate gives
  // it.
  virtual double break_even(const std::string& codec, const PlanRequest& request, CostTable& costs,
                            double speed_up) const;

  // Of a hierarchy, the same if ranks exchanged with all others directly.
  virtual std::optional<StepPrediction> predict_flat(const std::string& codec,
                                                     const PlanRequest& request,
                                                     CostTable& costs) const;

  // What else is said of predictions, a line each.
  virtual std::vector<std::string> notes() const { return {}; }
  // Whether what docs/results say of a codec's error is about such steps.
  virtual bool has_known_accuracy() const { return true; }
};

// Throws UsageError for arguments that do not go together, and Error for recipes and data.
std::unique_ptr<PlanSubject> make_plan_subject(const PlanArguments& arguments,
                                               std::optional<int> ranks);

// Of a recipe with stages. `threads`: run.threads as the caller gave it, 0 for none.
std::unique_ptr<PlanSubject> make_pipeline_subject(const PlanArguments& arguments, Recipe recipe,
                                                   int ranks, int64_t threads);

// The links and machines that arguments name.
PlanRequest request_of(const PlanArguments& arguments, int ranks, int per_machine, bool own_core);

// Of each machine.
int cores_of(const PlanArguments& arguments);

// Whether the exchange has a core of its own: ranks that were given so many threads each leave one
// on their machine.
bool leaves_a_core(const PlanArguments& arguments, int64_t threads, int per_machine);

}  // namespace thinwire::cli
