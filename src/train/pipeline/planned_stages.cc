// measured_pipeline: all stages of a network on one rank, pass after pass, with a clock.
// SPDX-License-Identifier: Apache-2.0
#include "train/pipeline/planned_stages.h"

#include <torch/torch.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "thinwire/recipe_plan.h"
#include "train/data/data_sets.h"
#include "train/describe.h"
#include "train/draw_context.h"
#include "train/elapsed_time.h"
#include "train/evaluate.h"
#include "train/models/models.h"
#include "train/pipeline/autoencoder.h"
#include "train/pipeline/boundary_counters.h"
#include "train/pipeline/pipeline_options.h"
#include "train/pipeline/stage_plan.h"
#include "train/recipe_parts.h"
#include "train/sequence.h"
#include "train/thread_count.h"
#include "train/timetable.h"

namespace thinwire {
namespace {

struct PassTimes {
  std::vector<double> forward, backward;  // by stage
};

// One micro-batch through all stages and back. The last stage also computes the loss.
PassTimes take_passes(const Task& task, const StageCut& cut, const Batch& batch,
                      const DrawContext& draw) {
  const size_t stages = cut.starts.size() - 1;
  const DrawScope draws(draw);
  PassTimes times;
  std::vector<torch::Tensor> inputs, outputs;
  for (size_t stage = 0; stage < stages; ++stage) {
    torch::Tensor x = stage == 0 ? batch.inputs : outputs.back().detach().requires_grad_();
    inputs.push_back(x);
    const ElapsedTime watch;
    for (size_t i = cut.starts[stage]; i < cut.starts[stage + 1]; ++i)
      x = run_layer(task.layers[i], i, x);
    if (stage + 1 == stages) x = task.loss(x, batch.targets);
    times.forward.push_back(watch.seconds());
    outputs.push_back(x);
  }
  times.backward.resize(stages);
  for (size_t stage = stages; stage-- > 0;) {
    const ElapsedTime watch;
    if (stage + 1 == stages)
      outputs[stage].backward();
    else if (outputs[stage].requires_grad())
      outputs[stage].backward(inputs[stage + 1].grad().contiguous());
    times.backward[stage] = watch.seconds();
  }
  task.module->zero_grad();
  return times;
}

double median(std::vector<double> numbers) {
  const auto middle = numbers.begin() + static_cast<std::ptrdiff_t>(numbers.size() / 2);
  std::nth_element(numbers.begin(), middle, numbers.end());
  return *middle;
}

void measure(const Options& recipe, const Task& task, const StageCut& cut, const Dataset& data,
             uint64_t samples, int steps, PlannedPipeline& to) {
  std::vector<uint64_t> ids(std::min(samples, data.size()));
  std::iota(ids.begin(), ids.end(), uint64_t{0});
  const auto seed = static_cast<uint64_t>(recipe.integer("train.seed"));
  const Batch batch = data.fetch(ids, {.training = true, .seed = seed, .epoch = 0});
  std::vector<torch::Tensor> buffers;
  for (const torch::Tensor& buffer : task.module->buffers()) buffers.push_back(buffer.clone());
  std::vector<PassTimes> taken;
  run_local(1, [&](Group& group) {
    const ThreadCount threads(threads_of(recipe, group));
    task.module->train();
    constexpr int kUncounted = 2;  // which allocate
    for (int step = 0; step < kUncounted + steps; ++step) {
      PassTimes times = take_passes(
          task, cut, batch,
          {.seed = seed, .step = static_cast<uint64_t>(step), .first = 0, .rows = ids.size()});
      if (step >= kUncounted) taken.push_back(std::move(times));
    }
  });
  const torch::NoGradGuard no_grad;
  for (size_t i = 0; i < buffers.size(); ++i) task.module->buffers()[i].copy_(buffers[i]);
  for (size_t stage = 0; stage < to.stages.size(); ++stage) {
    std::vector<double> forward, backward;
    for (const PassTimes& times : taken) {
      forward.push_back(times.forward[stage]);
      backward.push_back(times.backward[stage]);
    }
    to.stages[stage].forward_seconds = median(std::move(forward));
    to.stages[stage].backward_seconds = median(std::move(backward));
  }
}

}  // namespace

PlannedPipeline measured_pipeline(const Options& recipe, Task given, const TaskData& data,
                                  int ranks, int steps) {
  const PipelineOptions options = pipeline_options(recipe);
  const auto stages = static_cast<int>(options.stages);
  if (stages == 0 || ranks % stages != 0)
    throw Error(ErrorCode::kBadOption, "pipeline.stages: " + std::to_string(stages) +
                                           " stages need as many workers, or a multiple of that, "
                                           "not " +
                                           std::to_string(ranks));
  const Task task = with_autoencoders(recipe, with_defaults(std::move(given)), data.train);
  const StageCut cut = cut_stages(options, task, data.train, 2);
  const auto batch = static_cast<uint64_t>(recipe.integer("train.batch"));
  const uint64_t share = largest_part(batch, static_cast<uint64_t>(ranks / stages));
  const uint64_t passes =
      std::min(static_cast<uint64_t>(recipe.integer("train.micro_batches")), share);
  PlannedPipeline planned{.stages = {},
                          .cuts = {},
                          .micro_batches = passes,
                          .even = batch % (passes * static_cast<uint64_t>(ranks / stages)) == 0,
                          .order = options.decoupling && stages > 1 ? std::string("decoupled")
                                                                    : recipe.text("pipeline.order"),
                          .exchange = exchange_options(recipe)};
  const uint64_t samples = largest_part(share, passes);
  for (size_t stage = 0; stage < options.stages; ++stage)
    planned.stages.push_back({.tensors = describe_parameters(
                                  *stage_module(task, cut.starts[stage], cut.starts[stage + 1]))});
  for (size_t number = 0; number + 1 < options.stages; ++number) {
    PlannedCut crossing{.forward = boundary_options(options, number, false),
                        .backward = boundary_options(options, number, true)};
    for (BoundarySpec* spec : {&crossing.forward, &crossing.backward}) {
      spec->name = task.layers[cut.starts[number + 1] - 1].name;
      spec->sample_shape = cut.crossing[number];
      spec->samples = samples;
      spec->micro_batches = passes;
    }
    if (options.decoupling)
      crossing.auxiliary_bytes = static_cast<double>(data.train.size() * sizeof(float)) *
                                 static_cast<double>(count_of(cut.crossing[number])) *
                                 static_cast<double>(stages) / ranks;
    if (options.shared_positions)
      crossing.forward.note_positions = crossing.backward.at_positions = make_kept_positions();
    planned.cuts.push_back(std::move(crossing));
  }
  if (steps > 0) measure(recipe, task, cut, data.train, samples, steps, planned);
  return planned;
}

PlannedPipeline recipe_pipeline(const Recipe& recipe, const RunPlaces& places, int ranks,
                                int steps) {
  const DataSplits data = make_data_set(data_request(recipe.options, places.data));
  return measured_pipeline(recipe.options, make_model(model_options(recipe.options), data.shape),
                           {.train = *data.train, .test = *data.test}, ranks, steps);
}

}  // namespace thinwire
