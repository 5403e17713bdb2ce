// PipelineCounters: counters that a pipeline's ranks exchange at the end of a step, and sums.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "thinwire/boundary.h"
#include "thinwire/exchange.h"
#include "thinwire/group.h"
#include "thinwire/stream.h"
#include "thinwire/trainer.h"
#include "train/pipeline/stage_links.h"
#include "train/pipeline/stage_plan.h"

namespace thinwire {

// Of one rank in one step.
struct StageCounters {
  struct Sends {
    uint64_t values = 0, payload_bytes = 0, message_bytes = 0, full = 0;
  };
  Sends activations, gradients;
  uint64_t sent_bytes = 0, dense_bytes = 0;  // the exchange's included
  uint64_t samples = 0;                      // whose loss this is the sum of
  double loss = 0;
  double penalty = 0;  // likewise: the sum over samples, at the cut behind this rank's stage
  double seconds = 0, wait = 0;
  double compress = 0, decompress = 0;

  void add(const Departed& departed, bool backward);
};

class PipelineCounters {
 public:
  // `exchange` are the streams of this rank's stage's exchange; counted if there are several
  // pipelines.
  PipelineCounters(const StagePlan& plan, const Task& task, const StepShape& shape,
                   const std::vector<StreamSpec>& exchange);

  // Both directions of each boundary, then the exchange's.
  const std::vector<StreamSpec>& streams() const noexcept { return streams_; }

  struct Sum {
    PipelineReport pipeline;
    double loss = 0;
    double penalty = 0;
  };
  // Puts into `report`, which is the exchange's, what crossed the boundaries. Called by all ranks.
  Sum gather(Group& group, const StageCounters& mine, StepReport& report) const;

 private:
  const StagePlan& plan_;
  std::vector<std::string> names_;  // of boundaries
  std::vector<StreamSpec> streams_;
};

}  // namespace thinwire
