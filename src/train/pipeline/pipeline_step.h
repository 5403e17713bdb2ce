// One step of a pipeline on one rank, while it lasts.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <deque>
#include <future>
#include <vector>

#include "thinwire/torch.h"
#include "train/pipeline/pipeline_counters.h"
#include "train/pipeline/stage_links.h"
#include "train/stopwatch.h"
#include "train/timetable.h"

namespace thinwire {

// What was not finite on a rank, in the order it is looked for.
enum class Spoiled : uint8_t { kNothing, kActivations, kGradients, kWeights };

// A micro-batch between its forward and its backward pass.
struct Passing {
  torch::Tensor inputs, outputs;  // of this stage; the last stage's output is its weighted loss
};

// What a step knows while it lasts.
struct PipelineStep {
  uint64_t number = 0;
  bool warming_up = false;
  Slice whole, mine;          // of the batch; this pipeline's
  std::vector<uint64_t> ids;  // of mine
  std::vector<Slice> parts;   // of mine: micro-batches
  uint64_t batch = 0;         // id, of fixed batches
  FetchContext fetching_for;
  std::vector<Passing> passing;
  std::deque<std::future<Arrived>> activations, gradients;  // to come, in order
  std::vector<std::future<Departed>> activations_out, gradients_out;
  StageCounters counters;
  Spoiled spoiled = Spoiled::kNothing;

  Visit visit(size_t micro_batch) const {
    const Slice part = parts[micro_batch];
    return {.step = number,
            .micro_batch = micro_batch,
            .ids = std::span(ids).subspan(part.begin, part.size),
            .batch = batch};
  }
  void spoil(Spoiled how) {
    if (spoiled == Spoiled::kNothing) spoiled = how;
  }
  Arrived next(std::deque<std::future<Arrived>>& queue, Spoiled how) {
    const Stopwatch waiting;
    Arrived arrived = queue.front().get();
    queue.pop_front();
    counters.wait += waiting.seconds();
    counters.decompress += arrived.decompress_seconds;
    if (!arrived.finite) spoil(how);
    return arrived;
  }
  void collect(std::vector<std::future<Departed>>& sends, bool backward, Spoiled how) {
    for (std::future<Departed>& send : sends) {
      const Departed departed = send.get();
      counters.add(departed, backward);
      if (!departed.sent.finite) spoil(how);
    }
  }
};

}  // namespace thinwire
