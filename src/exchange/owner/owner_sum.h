// OwnerSum: combines the contributions to a chunk at its owner; functions that write contributions
// and read results.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "exchange/owner/chunk.h"
#include "exchange/rules/contributions.h"
#include "exchange/state/owner_memory.h"

namespace thinwire {

// Writes this rank's contribution to a chunk that another rank owns: one frame for each part.
void write_contribution(StepContext& context, const Chunk& chunk, std::span<std::byte> message);

// Writes the frames of a result that this rank has in its streams' result(), for ranks that lack
// it. A result that is not finite gives a flagged header, and is noted.
void write_kept_result(StepContext& context, const Chunk& chunk, std::span<std::byte> message);

// Puts the values of an owner's result in their places.
void take_result(StepContext& context, const Chunk& chunk, std::span<const std::byte> message,
                 size_t owner);

// The owner's side, one chunk after another: begin, then the contributions of all ranks that take
// part in their order, then either write_result and take_own_result, or keep_result. Memory is made
// once, for the largest chunk. Not shared between threads.
class OwnerSum {
 public:
  // How the owner adds what stays with it: as it is, or as the others see it. Votes are always
  // seen.
  enum class Own : uint8_t { kAsItIs, kCoded };

  struct Most {
    size_t count = 0;  // values of a chunk
    size_t size = 0;   // bytes of its message
    size_t parts = 0;
  };

  // `memories` are what this rank owes, by stream; null where nothing is remembered.
  OwnerSum(StepContext& context, const Combine& rule, Own own, const Most& most,
           std::span<OwnerMemory* const> memories);

  void begin(const Chunk& chunk);
  void add_own();
  void add(size_t rank, std::span<const std::byte> message);

  // After the last rank, for a VectorRule: what the chunk adds to the statistics.
  void add_statistics(std::span<double> statistics);

  // Combines, adds what is owed, encodes, and writes the frames of the result. A flag stands for a
  // result that cannot be given; this rank has noted why. `row_weights` are those of a VectorRule.
  void write_result(std::span<std::byte> message, std::span<const float> row_weights = {});

  // Takes what was written as all others do: after it was sent, so that they need not wait.
  void take_own_result(std::span<const std::byte> message);

  // Combines, and leaves the result with this rank alone, as it is; zeros where there is none.
  void keep_result(std::span<const float> row_weights = {});

 private:
  void write_part(size_t index, const ChunkPart& part, std::span<float> result,
                  std::span<std::byte> frame);

  StepContext& context_;
  const Own own_;
  const std::span<OwnerMemory* const> memories_;
  const Chunk* chunk_ = nullptr;
  Contributions contributions_;
  std::vector<std::byte> own_room_;  // for what this rank codes of its own
  std::vector<bool> spoilt_;         // parts of the chunk without a result
};

}  // namespace thinwire
