// TriedDecisions: what steps with each decision took, beside what was predicted for them.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>

#include "thinwire/auto_codec.h"
#include "thinwire/step_plan.h"

namespace thinwire {

// Of rank 0. A codec whose thread takes turns with the arithmetic on one core makes gradients late.
// So each decision is predicted from the gradients' times that were seen with it, not from those of
// what holds now.
class TriedDecisions {
 public:
  struct Tried {
    StepTimeline timeline;  // of its steps
    double factor = 1;      // what a step took / what is predicted from this timeline
    bool of_start = false;  // of the first steps of a run alone, which take longer than later ones
  };

  // Steps of a window with `decision` had this timeline and took `factor` times what is predicted
  // from it. If the window before had the same decision and its arithmetic took another time, so
  // will that of all others. Otherwise a decision that comes back gets the mean of what was seen,
  // without what is `of_start`.
  void learn(const AutoDecision& decision, const StepTimeline& timeline, double factor,
             bool of_start = false);
  void forget() { all_.clear(); }

  // Null if it was not tried.
  const Tried* find(const AutoDecision& decision) const;
  // Of all factors; 1 if there are none.
  double worst_factor() const;
  double least_factor() const;

 private:
  std::map<std::string, Tried> all_;  // by key_of
  std::string latest_;                // key of the last window
};

}  // namespace thinwire
