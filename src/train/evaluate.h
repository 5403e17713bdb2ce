// Evaluates a network: ranks share the samples; sums do not depend on the number of ranks.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>

#include "thinwire/torch.h"
#include "thinwire/trainer.h"

namespace thinwire {

struct Score {
  double loss = 0;       // mean over predictions
  double error = 0;      // wrong / predictions
  uint64_t samples = 0;  // in the data set
};

// What is tested in a run, and how.
struct Judge {
  std::function<Score(const Task& task, const Dataset& data)> score;  // called by all ranks
  const Dataset& test;
  const Dataset* hold_out = nullptr;
};

// Notes in `event` how the network does with what it sends compressed, as `task` computes it.
// Called by all ranks.
void judge_compressed(const Judge& judge, const Task& task, EvaluationEvent& event);

// Whole batches are shared out over the ranks; every batch's sums are then added in their order by
// every rank, so that the score has the same bits on each, and for each number of ranks. The module
// is in evaluation mode meanwhile. Called by all ranks.
Score evaluate(Group& group, const Task& task, const Dataset& data, uint64_t batch,
               const FetchContext& context);

// The mean loss of this rank's network over the first `samples` of the data, in evaluation mode.
// Talks to nobody.
double own_loss(const Task& task, const Dataset& data, uint64_t samples, uint64_t batch);

// The task with its absent functions filled in: cross entropy, arg-max.
Task with_defaults(Task task);

}  // namespace thinwire
