// Which micro-batches of a step passed an end of a boundary, and whether the step can count.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <vector>

#include "core/check.h"
#include "pipeline/boundary_plan.h"

namespace thinwire {

class StepMarks {
 public:
  explicit StepMarks(const BoundaryPlan& plan)
      : plan_(plan), passed_(plan.spec.micro_batches), next_step_(plan.spec.first_step) {}

  // Checks what the caller gave, and takes the micro-batch's turn. Without its done() the step
  // cannot count. Returns the number of samples.
  size_t begin(size_t values, const Visit& visit) {
    const std::string origin = plan_.origin();
    THINWIRE_CHECK(visit.micro_batch < passed_.size(), origin + "no such micro-batch");
    THINWIRE_CHECK(!passed_[visit.micro_batch], origin + "a micro-batch comes twice in a step");
    const size_t samples = values / plan_.sample_count;
    THINWIRE_CHECK(
        values == samples * plan_.sample_count && samples > 0 && samples <= plan_.spec.samples,
        origin + "not the values of 1 to " + std::to_string(plan_.spec.samples) + " whole samples");
    THINWIRE_CHECK(!plan_.whole_batches || samples == plan_.spec.samples,
                   origin + "memory '" + plan_.spec.memory + "' takes whole batches only");
    passed_[visit.micro_batch] = true;
    next_step_ = visit.step + 1;
    ++unfinished_;
    return samples;
  }
  uint64_t next_step() const noexcept { return next_step_; }
  void done() noexcept { --unfinished_; }

  void commit() {
    THINWIRE_CHECK(unfinished_ == 0, plan_.origin() + "commit of a step that failed");
    rollback();
  }
  void rollback() noexcept {
    std::fill(passed_.begin(), passed_.end(), false);
    unfinished_ = 0;
  }

 private:
  const BoundaryPlan& plan_;
  std::vector<bool> passed_;
  uint64_t next_step_;     // behind the last one that something passed in
  size_t unfinished_ = 0;  // micro-batches that began and failed, or are under way
};

}  // namespace thinwire
