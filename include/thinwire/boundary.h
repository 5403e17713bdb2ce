// What crosses from one pipeline stage to the next: one tensor, in one direction, compressed.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "thinwire/options.h"
#include "thinwire/state.h"
#include "thinwire/status.h"

namespace thinwire {

// The positions that a sparse message kept, at one end of a cut, for the gradients that come back. Of
// an activation's receiver and its gradient's sender there is one, of the activation's sender and the
// gradient's receiver another. Both may be on threads of their own, where the activation of a
// micro-batch has passed before its gradient does.
class KeptPositions;
std::shared_ptr<KeptPositions> make_kept_positions();

// Both ends are made from the same spec, but for the last four members.
struct BoundarySpec {
  std::string name;                    // of the tensor: in errors, and in random draws
  std::vector<uint64_t> sample_shape;  // of one sample
  size_t samples = 1;                  // of a micro-batch
  size_t micro_batches = 1;            // of a step
  std::string codec = "fp32";          // as make_codec reads it, or a schedule: docs/memories.md
  bool per_sample = false;             // each is a stream of its own; else the micro-batch is one
  std::string memory = "none";         // of list_boundary_memories(): "aqsgd:key=batch"
  uint64_t seed = 0;                   // of the run
  uint64_t steps_per_epoch = 1;        // what schedules count in; 0: as in ExchangeOptions
  uint64_t first_step = 0;             // of a resumed run: whose codec a saved state is of
  uint32_t stream = 0;      // index of the boundary's direction: for the frames, as below
  uint16_t sender = 0;      // rank
  uint32_t generation = 0;  // of the group

  // Estimates beyond so many bytes lie in a file in the folder, which nobody else sees and which is
  // gone with the process. 0: all lie in memory. Where they lie changes no bit.
  size_t cache_budget = 0;
  std::string spill_folder = {};

  // Activations of a sparse codec: what their messages keep is noted here.
  std::shared_ptr<KeptPositions> note_positions = {};
  // Gradients: only the values at the noted positions travel, as codec fp32, fp16 or bf16. All others
  // arrive as 0. Without memory.
  std::shared_ptr<KeptPositions> at_positions = {};
};

// What one message is of. Memories that have no use for ids and batch take an empty span and 0; what
// is given is compared with what the other end is given.
struct Visit {
  uint64_t step = 0;
  size_t micro_batch = 0;              // below spec.micro_batches; each once in a step
  std::span<const uint64_t> ids = {};  // of the samples, in order
  uint64_t batch = 0;                  // of the mini-batch; for aqsgd:key=batch
};

struct Sent {
  size_t size = 0;     // bytes of the message
  size_t full = 0;     // samples that went in full, for the first time
  bool finite = true;  // false: the message carries nothing; the step must be rolled back
};

// An end of a boundary. Within a step each micro-batch passes once, in any order; commit makes
// permanent what all of them left, rollback forgets it to the bit. After a failure, or values that
// were not finite, the step must be rolled back, on both ends. Not shared between threads.
//
// encode and decode throw Error(kContract) for a number of values that is not that of whole samples,
// at most spec.samples of them (exactly, for ef, efmixed and ef21); for ids that are missing or come
// twice in a step; and Error(kMismatch) where under batch keys a batch has other samples than at its
// first visit. Error(kIo): the spill file cannot grow.
class BoundaryEnd : public Stateful {
 public:
  virtual void commit() = 0;  // throws Error(kContract) after a failure in this step
  virtual void rollback() = 0;

  // Forgets all estimates, as after a change of what sample ids stand for. Both ends must.
  virtual void invalidate() = 0;
};

class BoundarySender : public BoundaryEnd {
 public:
  // Upper bound on the bytes of a message.
  virtual size_t max_message_size() const = 0;

  // Writes the message: a frame. REQUIRES: out.size() >= max_message_size().
  virtual Sent encode(std::span<const float> values, const Visit& visit,
                      std::span<std::byte> out) = 0;
};

class BoundaryReceiver : public BoundaryEnd {
 public:
  // Writes what arrived to `values`. `bytes` came from the network and may hold anything: fails where
  // they are no message of this boundary, step, micro-batch and ids, where the ends remember different
  // things, or with kNonFinite where the sender's values were not finite. `values` is then unspecified.
  virtual Status decode(std::span<const std::byte> bytes, const Visit& visit,
                        std::span<float> values) = 0;
};

// Fail where a name or option in the spec is wrong, or does not go with another.
Result<std::unique_ptr<BoundarySender>> make_boundary_sender(const BoundarySpec& spec);
Result<std::unique_ptr<BoundaryReceiver>> make_boundary_receiver(const BoundarySpec& spec);

// One row of the table of memories.
struct BoundaryMemory {
  std::string_view name;
  std::string_view summary = {};
  std::string_view paper = {};
  std::vector<OptionInfo> options = {};
};
std::vector<BoundaryMemory> list_boundary_memories();

}  // namespace thinwire
