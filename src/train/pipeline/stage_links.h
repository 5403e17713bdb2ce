// The wires of one stage: tensors of micro-batches to and from the stages beside it, compressed and
// decompressed on threads of their own, so that the stage computes meanwhile.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <future>
#include <memory>
#include <vector>

#include "thinwire/boundary.h"
#include "thinwire/group.h"
#include "train/pipeline/serial_thread.h"
#include "train/pipeline/stage_boundaries.h"
#include "train/pipeline/stage_plan.h"

namespace thinwire {

// A tensor that came over the wire. Of values that were not finite all are NaN.
struct Arrived {
  torch::Tensor values;
  bool finite = true;
  double decompress_seconds = 0;
};

struct Departed {
  Sent sent;
  torch::Tensor delivered;  // what arrives of it, if the way has a mirror
  uint64_t values = 0;
  double compress_seconds = 0, decompress_seconds = 0;  // the latter of the mirror
};

// What is received and what is sent, each on a thread that does one message after the other. An
// error on either ends the waits of all ranks. For one thread; futures may outlive neither this nor
// the visits' ids.
class StageLinks {
 public:
  // Called by all ranks.
  StageLinks(Group& group, const StagePlan& plan);

  // Of the samples of visit.ids, `shape` each. Throws, from the future, Error(kCorrupt) and so on
  // naming the stage and the rank it came from, and the group's errors.
  std::future<Arrived> receive_activations(const WayIn& way, const Visit& visit);
  std::future<Arrived> receive_gradients(const WayIn& way, const Visit& visit);

  // `values` are contiguous float32 and stay as they are until the future is ready.
  std::future<Departed> send_activations(const WayOut& way, torch::Tensor values,
                                         const Visit& visit);
  std::future<Departed> send_gradients(const WayOut& way, torch::Tensor values, const Visit& visit);

  // Ends the waits of all ranks, those of this one's threads too.
  void abort(const char* why) noexcept;

 private:
  // One direction over one cut: a group of the two ranks on both sides, of which this is one.
  struct Wire {
    std::unique_ptr<Group> group;
    size_t other_stage = 0;
    int other_rank = 0;             // in the whole group
    std::vector<std::byte> buffer;  // of this rank's messages
    std::vector<int64_t> shape;     // of one sample
  };

  std::future<Arrived> receive(Wire& wire, const WayIn& way, const Visit& visit);
  std::future<Departed> send(Wire& wire, const WayOut& way, torch::Tensor values,
                             const Visit& visit);

  const StagePlan& plan_;
  Wire activations_in_, gradients_in_, activations_out_, gradients_out_;
  SerialThread receiving_, sending_;  // the last to be made and the first to go
};

}  // namespace thinwire
