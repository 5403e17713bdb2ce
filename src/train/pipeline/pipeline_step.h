// PipelineStep: the state of one step of a pipeline on one rank.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/torch.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <deque>
#include <future>
#include <span>
#include <vector>

#include "thinwire/torch.h"
#include "train/elapsed_time.h"
#include "train/pipeline/pipeline_counters.h"
#include "train/pipeline/stage_links.h"
#include "train/timetable.h"

namespace thinwire {

// What a rank sent or holds that is not finite.
struct Spoiled {
  bool activations = false, gradients = false;  // of those that it sent
  bool weights = false;                         // their gradients
  bool auxiliary = false;                       // variables that it would have
};

// A micro-batch between its forward and its backward pass.
struct Passing {
  torch::Tensor inputs, outputs;  // of this stage; the last stage's output is its weighted loss
  bool finite = true;             // the activations that came
};

// What a micro-batch was at a cut, as both sides know it. Gradients are those of the step's loss.
struct Crossed {
  torch::Tensor activations, gradients;
};

// What a step knows while it lasts.
struct PipelineStep {
  uint64_t number = 0;
  bool warming_up = false;
  bool decoupled = false;          // stages do not wait for each other's activations and gradients
  double share = 1;                // of one sample in the step's loss
  SampleRange whole, mine;         // of the batch; this pipeline's
  std::vector<uint64_t> ids;       // of mine
  std::vector<SampleRange> parts;  // of mine: micro-batches
  uint64_t batch = 0;              // id, of fixed batches
  FetchContext fetching_for;
  std::vector<Passing> passing;
  std::deque<std::future<Arrived>> activations, gradients;  // to come, in order
  std::vector<std::future<Departed>> activations_out, gradients_out;
  std::vector<Crossed> before, after;  // by micro-batch, where auxiliary variables follow from it
  StageCounters counters;
  Spoiled spoiled;

  Visit visit(size_t micro_batch) const {
    const SampleRange part = parts[micro_batch];
    return {.step = number,
            .micro_batch = micro_batch,
            .ids = std::span(ids).subspan(part.begin, part.size),
            .batch = batch};
  }
  Arrived next(std::deque<std::future<Arrived>>& queue) {
    const ElapsedTime waiting;
    Arrived arrived = queue.front().get();
    queue.pop_front();
    counters.wait += std::max(0.0, waiting.seconds() - arrived.decompress_seconds);
    counters.decompress += arrived.decompress_seconds;
    return arrived;
  }
  // Of all that was sent one way; whether it was finite.
  bool collect(std::vector<std::future<Departed>>& sends, bool backward) {
    bool finite = true;
    for (size_t i = 0; i < sends.size(); ++i) {
      const Departed departed = sends[i].get();
      counters.add(departed, backward);
      finite = finite && departed.sent.finite;
      if (backward && !before.empty()) before[i].gradients = departed.delivered;
      if (!backward && !after.empty()) after[i].activations = departed.delivered;
    }
    sends.clear();
    return finite;
  }
  // After an error: that of a message that could not leave is the reason for all others.
  void throw_what_sending_threw() {
    for (auto* sends : {&activations_out, &gradients_out}) {
      for (std::future<Departed>& send : *sends) {
        if (!send.valid() || send.wait_for(std::chrono::seconds(0)) != std::future_status::ready)
          continue;
        try {
          send.get();
        } catch (const Error& error) {
          if (error.code() != ErrorCode::kPeerLost) throw;
        } catch (const std::future_error&) {  // it was not begun
        }
      }
    }
  }
};

}  // namespace thinwire
