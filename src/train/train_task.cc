// train_task: the trainer's entry for tasks of the caller's own.
// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "train/training_run.h"

namespace thinwire {

RunSummary train_task(const Recipe& recipe, const RunPlaces& places, Group& group, Task task,
                      const TaskData& data, const RunEvents& events) {
  return TrainingRun(recipe, places, group, std::move(task), data, events).train();
}

}  // namespace thinwire
