// AutoChoice: finds the codecs with which the predicted step is shortest, tensors of one size
// together.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "plan/tried_decisions.h"
#include "thinwire/auto_codec.h"

namespace thinwire {

// The options of an exchange that does what was decided; `base` says auto. The rules of `base` come
// first.
ExchangeOptions decided_options(ExchangeOptions base, const AutoDecision& decision);

// Whether two decisions differ in nothing but their steps and reasons.
bool same_codecs(const AutoDecision& a, const AutoDecision& b);

// "int8"; "int8, fp32 for 3 of 8 tensors".
std::string name_of(const AutoDecision& decision, size_t tensors);

// Of one codec and memory each: all whose costs predictions need, whatever is decided. The first
// are those of the candidates.
std::vector<ExchangeOptions> settings_to_measure(const ExchangeOptions& base,
                                                 const std::vector<TensorSpec>& tensors);

// What is the same for all decisions that are compared.
struct Situation {
  StepTimeline timeline;
  PlanRequest request;
};

// Of rank 0. Predictions are corrected by what steps with a decision really took.
class AutoChoice {
 public:
  AutoChoice(ExchangeOptions base, std::vector<TensorSpec> tensors, CostTable costs);

  // The setting gets its cost measured, unless known, or no such exchange can be.
  void measure(const ExchangeOptions& setting);
  const CostTable& costs() const noexcept { return costs_; }

  // Seconds of a step; infinite where such an exchange cannot be.
  double predicted(const Situation& now, const AutoDecision& decision);
  double expected(const Situation& now, const AutoDecision& decision);
  bool was_tried(const AutoDecision& decision) const;

  // Steps with `decision` took `seconds`. Decisions that were never tried are taken to be as far
  // from their predictions as the worst of those that were, so that one codec that disappoints
  // speaks for all.
  // `of_start`: they were the first steps of a run.
  void learn(const Situation& now, const AutoDecision& decision, double seconds,
             bool of_start = false);
  // What others took was under other conditions.
  void forget();

  // A decision with more loss is chosen if it is at least 2 % faster than those before it.
  AutoDecision best(const Situation& now);

  // A codec for all tensors that is worth a trial; of several the one with the shortest predicted
  // step. It might be the fastest of all if its communication took only a part of what is
  // predicted; or, if both it and `current` lose more than rounding does, if predictions of whole
  // steps are as wrong as they may be.
  std::optional<AutoDecision> worth_trying(const Situation& now, const AutoDecision& current);
  // fp32 for all tensors, if it was seen in the first steps alone, which may take longer than later
  // ones, and its predicted step is not much longer than that of `current`.
  std::optional<AutoDecision> dense_again(const Situation& now, const AutoDecision& current);

 private:
  Result<StepPrediction> play(const Situation& now, const AutoDecision& decision);
  bool is_free(const TensorSpec& tensor) const;
  bool promises(const Situation& now, const StepPrediction& held, const AutoDecision& other,
                const StepPrediction& step, double least) const;
  bool is_close(const AutoDecision& other, const StepPrediction& step, double least) const;
  void refine(const Situation& now, AutoDecision& best);

  const ExchangeOptions base_;
  const std::vector<TensorSpec> tensors_;
  const std::vector<std::string> candidates_;
  CostTable costs_;
  TriedDecisions tried_;
  std::set<std::string> codecs_tried_;  // for most tensors
};

}  // namespace thinwire
