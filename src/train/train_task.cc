// train_task: the trainer's entry for tasks of the caller's own.
// SPDX-License-Identifier: Apache-2.0
#include <exception>
#include <string>
#include <utility>

#include "thinwire/survived.h"
#include "train/elastic.h"
#include "train/pipeline/autoencoder.h"
#include "train/run_device.h"
#include "train/tensor/tensor_autoencoders.h"
#include "train/training_run.h"

namespace thinwire {

RunSummary train_task(const Recipe& recipe, const RunPlaces& places, Group& group, Task task,
                      const TaskData& data, const RunEvents& events) {
  if (recipe.options.flag("run.elastic"))
    throw Error(ErrorCode::kContract,
                "run.elastic: give train_task the worker's Members, which make its groups");
  for (const RecipeFault& fault :
       find_faults(recipe.options))  // callers' own are not checked before
    if (fault.key == "run.device")
      throw AgreedError(fault.status.code(), fault.key + ": " + fault.status.message());
  RunDevice device;
  const ProcessRanks ranks = ranks_of_process(group);
  together(group, [&] {
    device = RunDevice(recipe.options.text("run.device"), group.rank(), ranks);
    task = with_autoencoders(recipe.options, std::move(task), data.train);
    task = with_tensor_autoencoders(recipe.options, std::move(task));
    move_module(*task.module, device);
  });
  if (device.is_processor())
    return TrainingRun(recipe, places, group, std::move(task), data, device, events).train();
  const auto train = moved_data(&data.train, device), test = moved_data(&data.test, device),
             hold_out = moved_data(data.hold_out, device);
  return TrainingRun(recipe, places, group, std::move(task),
                     {.train = *train, .test = *test, .hold_out = hold_out.get()}, device, events)
      .train();
}

namespace {

// In a handler. The others have been told.
[[noreturn]] void leave(Members& members, ErrorCode code, const char* why) {
  if (members.is_alone()) throw;
  throw SurvivedError(code, why);
}

}  // namespace

RunSummary train_task(const Recipe& recipe, const RunPlaces& places, Members& members, Task task,
                      const TaskData& data, const RunEvents& events) {
  for (const RecipeFault& fault : find_faults(recipe.options))
    if (fault.key == "run.elastic" || fault.key == "run.device")
      throw AgreedError(fault.status.code(), fault.key + ": " + fault.status.message());
  if (!recipe.options.flag("run.elastic"))
    throw Error(ErrorCode::kContract, "train_task: a run of Members needs run.elastic = true");
  Elastic elastic(members, recipe.options);
  if (!elastic.meet(/*admit=*/true))
    throw SurvivedError(ErrorCode::kPeerLost, "elastic: the run ended before worker " +
                                                  std::to_string(members.number()) + " came");
  try {
    RunSummary summary = TrainingRun(recipe, places, elastic.group(), std::move(task), data,
                                     RunDevice(), events, &elastic)
                             .train();
    members.end();
    return summary;
  } catch (const AgreedError&) {
    throw;
  } catch (const SurvivedError&) {
    throw;
  } catch (const Error& error) {
    leave(members, error.code(), error.what());
  } catch (const std::exception& error) {
    leave(members, ErrorCode::kContract, error.what());
  }
}

}  // namespace thinwire
