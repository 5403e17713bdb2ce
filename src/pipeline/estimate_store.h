// Estimates of tensors under keys, in 16 or 32 bits.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "pipeline/slot_memory.h"
#include "thinwire/codec.h"
#include "thinwire/state.h"

namespace thinwire {

// What an estimate is, and where it may lie.
struct EstimateForm {
  size_t count = 0;                         // of values
  ValueFormat format = ValueFormat::kFp32;  // or kFp16, kBf16
  size_t budget = 0;                        // bytes in memory; 0: all
  std::string folder = {};                  // of what is beyond
};

class EstimateStore {
 public:
  explicit EstimateStore(EstimateForm form);

  size_t size() const noexcept { return keys_.size(); }
  std::optional<size_t> find(uint64_t key) const;
  uint64_t tag(size_t index) const noexcept { return tags_[index]; }

  // The first values of an estimate.
  void read(size_t index, std::span<float> out) const noexcept;

  // So that `more` new keys can be written without fail. Throws as SlotMemory::grow.
  void reserve(size_t more);

  // Under a key that is there or was reserved for. Beyond `values` an estimate is 0. Rounds to
  // nearest; fp16 and bf16 saturate.
  void write(uint64_t key, uint64_t tag, std::span<const float> values);

  void clear();

  // Arrays keys, tags and values in order of first visits; they are copies, so saving takes as much
  // memory again. On failure of load all is as it was.
  StateArrays save() const;
  Status load(const StateArrays& arrays);

 private:
  size_t slot_size() const noexcept;

  EstimateForm form_;
  std::unique_ptr<SlotMemory> slots_;
  std::unordered_map<uint64_t, size_t> index_;
  std::vector<uint64_t> keys_;  // by index
  std::vector<uint64_t> tags_;
};

}  // namespace thinwire
