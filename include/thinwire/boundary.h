// Pipeline boundaries: one tensor, in one direction, sent compressed from one stage to the next.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "thinwire/options.h"
#include "thinwire/state.h"
#include "thinwire/status.h"

namespace thinwire {

// The positions that a sparse message kept, at one end of a cut, for the gradients that come back.
// One object belongs to the activation's receiver and the gradient's sender, another to the
// activation's sender and the gradient's receiver. The two users may be on different threads, if
// the activation of a micro-batch passes before its gradient.
class KeptPositions;
std::shared_ptr<KeptPositions> make_kept_positions();

// Both ends are made from the same spec, except for the last four members.
struct BoundarySpec {
  std::string name;                    // of the tensor: in errors, and in random draws
  std::vector<uint64_t> sample_shape;  // of one sample
  size_t samples = 1;                  // of a micro-batch
  size_t micro_batches = 1;            // of a step
  std::string codec = "fp32";          // as make_codec reads it, or a schedule: docs/memories.md
  bool per_sample = false;       // true: each sample is a stream; false: the micro-batch is one
  std::string memory = "none";   // of list_boundary_memories(): "aqsgd:key=batch"
  uint64_t seed = 0;             // of the run
  uint64_t steps_per_epoch = 1;  // as in ExchangeOptions
  uint64_t first_step = 0;       // of a resumed run: a saved state belongs to this step's codec
  uint32_t stream = 0;           // index of the boundary's direction, written in frames
  uint16_t sender = 0;           // rank
  uint32_t generation = 0;       // of the group

  // Estimates beyond cache_budget bytes are kept in a file in spill_folder, which no other process
  // sees and which is deleted with the process. 0: all are kept in memory. The place changes no
  // bit.
  size_t cache_budget = 0;
  std::string spill_folder = {};

  // For activations of a sparse codec: the positions that messages keep are noted here.
  std::shared_ptr<KeptPositions> note_positions = {};
  // For gradients: only the values at the noted positions are sent, as codec fp32, fp16 or bf16.
  // All others arrive as 0. Requires memory none.
  std::shared_ptr<KeptPositions> at_positions = {};
};

// Identifies one message. If a memory does not use ids and batch, pass an empty span and 0. Each
// end compares the ids and the batch with those of the other end.
struct Visit {
  uint64_t step = 0;
  size_t micro_batch = 0;              // below spec.micro_batches; each once in a step
  std::span<const uint64_t> ids = {};  // of the samples, in order
  uint64_t batch = 0;                  // of the mini-batch; for aqsgd:key=batch
};

struct Sent {
  size_t size = 0;     // bytes of the message
  size_t full = 0;     // samples that were sent in full, for the first time
  bool finite = true;  // false: the message carries nothing; the step must be rolled back
};

// An end of a boundary. Within a step each micro-batch passes once, in any order. commit makes the
// changes of all of them permanent; rollback discards them, to the bit. After a failure, or values
// that were not finite, both ends must roll back the step. Threads must not share an end.
//
// encode and decode throw Error(kContract) if the number of values is not that of whole samples, at
// most spec.samples of them (exactly, for ef, efmixed and ef21), or if ids are missing or occur
// twice in a step. They throw Error(kMismatch) if with batch keys a batch has other samples than at
// its first visit, and Error(kIo) if the spill file cannot grow.
class BoundaryEnd : public Stateful {
 public:
  virtual void commit() = 0;  // throws Error(kContract) after a failure in this step
  virtual void rollback() = 0;

  // Forgets all estimates, for example because sample ids now mean other samples. Both ends must
  // call it.
  virtual void invalidate() = 0;
};

class BoundarySender : public BoundaryEnd {
 public:
  // Upper bound on the bytes of a message.
  virtual size_t max_message_size() const = 0;

  // Writes the message, which is a frame. REQUIRES: out.size() >= max_message_size().
  virtual Sent encode(std::span<const float> values, const Visit& visit,
                      std::span<std::byte> out) = 0;
};

class BoundaryReceiver : public BoundaryEnd {
 public:
  // Writes the received tensor to `values`. `bytes` comes from the network and may hold anything.
  // Fails if it is no message of this boundary, step, micro-batch and ids, or if the ends remember
  // different things; fails with kNonFinite if the sender's values were not finite. On failure the
  // content of `values` is unspecified.
  virtual Status decode(std::span<const std::byte> bytes, const Visit& visit,
                        std::span<float> values) = 0;
};

// Make the ends. They fail if a name or option in the spec is wrong, or does not fit another.
Result<std::unique_ptr<BoundarySender>> make_boundary_sender(const BoundarySpec& spec);
Result<std::unique_ptr<BoundaryReceiver>> make_boundary_receiver(const BoundarySpec& spec);

// One row of the table of boundary memories.
struct BoundaryMemory {
  std::string_view name;
  std::string_view summary = {};
  std::string_view paper = {};
  std::vector<OptionInfo> options = {};

  // Its vectors have the shape of a micro-batch: every one must have BoundarySpec::samples samples.
  bool whole_batches = false;
  // It has an estimate of each sample, or of each mini-batch, by its id. The activations of both
  // change slowly; their gradients do not.
  bool by_id = false;
  // Of those: whether, with these options, mini-batches must be the same in every epoch. Empty: no.
  std::function<bool(const Options&)> fixed_batches = nullptr;
};
std::vector<BoundaryMemory> list_boundary_memories();

// A memory of the table and what its text asks of it.
struct NamedBoundaryMemory {
  const BoundaryMemory* entry;
  Options options;
};

// Fails with the known names or options.
Result<NamedBoundaryMemory> find_boundary_memory(std::string_view text);

}  // namespace thinwire
