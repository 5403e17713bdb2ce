// AutoChooser: decides codecs for all ranks, by probes and watched steps, or by a recorded plan.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "plan/auto_choice.h"
#include "plan/auto_judge.h"
#include "plan/auto_link.h"
#include "plan/recorded_plan.h"
#include "plan/step_watch.h"
#include "thinwire/auto_codec.h"

namespace thinwire {

// Every method but watch's is called by all ranks, with the same arguments.
class AutoChooser {
 public:
  AutoChooser(Group& group, const ExchangeOptions& base, std::vector<TensorSpec> tensors,
              AutoSources sources);

  // The decision of the first step. What a resumed run has decided goes on, if it may be: a single
  // rank has fp32, and others no codec that loses more than they allow. Throws Error(kMismatch) on
  // all ranks where it is not what the plan says.
  AutoDecision begin(uint64_t step, const std::vector<AutoDecision>& resumed);

  // Before step `step`: what is to hold from there on, if that is something else than `now`.
  std::optional<AutoDecision> next(uint64_t step, const AutoDecision& now);

  AutoLink& link() noexcept { return link_; }
  double clock() const { return sources_.clock(); }
  StepWatch watch;  // of this rank

 private:
  void measure_codecs();
  void probe(double seconds);
  // After steps that were watched: for how many seconds to probe the link before codecs are looked
  // at again, 0 for not at all; nothing if what holds stays. The same on all ranks; `steps` is
  // rank 0's.
  std::optional<double> look(const WatchedStep& steps);
  Situation situation(const WatchedStep& steps) const;
  std::string decide(const WatchedStep& steps, const AutoDecision& now);
  void forget_other_conditions(const Situation& there, const AutoDecision& now);
  std::string reason(const Situation& now, const AutoDecision& decision) const;

  const ExchangeOptions base_;
  const std::vector<TensorSpec> tensors_;
  AutoSources sources_;
  AutoLink link_;
  std::optional<RecordedPlan> plan_;    // to be followed, if there is one
  std::optional<LinkSpec> speed_;       // of the link, once it was probed
  std::unique_ptr<AutoChoice> choice_;  // of rank 0
  // Predicted at the last look: what fp32 adds to the arithmetic of a step, and a step with what
  // holds since then.
  std::optional<double> dense_, step_;
  AutoJudge judge_;
  uint64_t steps_ = 0;  // that were watched
  uint64_t trials_ = 0;
};

}  // namespace thinwire
