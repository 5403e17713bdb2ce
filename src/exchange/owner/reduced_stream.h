// ReducedStream: one stream in sparse-reduce: the parts a rank sends, and the owners' sums.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "exchange/layout/kept_router.h"
#include "exchange/layout/stripes.h"
#include "exchange/owner/region_coder.h"
#include "exchange/state/owner_memory.h"
#include "exchange/wire/active_stream.h"
#include "kernel/top_selector.h"

namespace thinwire {

// A message to another rank while it is being written.
struct Outbox {
  Buffer buffer;
  size_t used = 0;

  std::span<std::byte> room() noexcept { return buffer.bytes().subspan(used); }
  std::span<const std::byte> message() const noexcept { return buffer.bytes().first(used); }
};

// Opens "<stream>/owner" in `store`: what this rank owes of its region of the stream.
//
// A step is send, then begin_sum and add for every rank in order, then reduce, then take for every
// owner, then end. Values are those of frames in the order of ReducedStreams in a message.
class ReducedStream {
 public:
  ReducedStream(StepContext& context, ActiveStream& stream, Store& store);

  // The region that a rank owns, if any.
  std::optional<uint32_t> region_of(size_t rank) const noexcept;
  size_t own_count() const noexcept { return own_ ? stripes_.size(*own_) : 0; }  // in values

  // Bytes that a frame of a region has at most, and those that send needs for itself.
  size_t limit(uint32_t region) const noexcept;
  size_t scratch_size() const { return stream_.codec().max_encoded_size(stream_.spec()); }

  // Encodes this step's signal, and writes a frame for every owner but this rank itself to what
  // goes to it. result() is zero from here on.
  void send(KeptRouter& router, std::span<std::byte> scratch, std::span<Outbox> to_ranks);

  // The owner's side: the sum of the ranks' parts, in memory for own_count() values. `add` returns
  // the bytes of the frame, 0 when there is no telling where it ends.
  void begin_sum(std::span<float> sum);
  void add_own();
  size_t add(std::span<const std::byte> bytes, size_t sender);
  void spoil() noexcept { spoilt_ = true; }  // there will be no sum
  void reduce(kernel::TopSelector& selector, Outbox& out);

  // What the owner of a region hands out; returns as `add` does.
  size_t take(std::span<const std::byte> bytes, uint32_t region, size_t owner);

  void end(bool skipped) noexcept;

  const ActiveStream& stream() const noexcept { return stream_; }

 private:
  FrameHeader header(uint32_t region, size_t sender) const noexcept;
  FrameHeader result_header(uint32_t region, size_t owner) const noexcept;
  size_t most(uint32_t region) const noexcept;
  void write_part(const KeptPart& part, uint32_t region, Outbox& out);
  void seal(FrameHeader header, bool dense, size_t payload_size, Outbox& out);
  void flag(FrameHeader header, Outbox& out);
  bool form_mean(std::span<float>& values);
  FrameOutcome open(std::span<const std::byte> bytes, FrameHeader expected, Frame& frame);
  void corrupt(size_t sender);

  StepContext& context_;
  ActiveStream& stream_;
  const Stripes stripes_;
  const RegionCoder coder_;
  size_t first_;                   // owner of region 0
  std::optional<uint32_t> own_;    // this rank's region
  size_t kept_limit_;              // values that a rank keeps of the whole stream, at most
  OwnerMemory* memory_ = nullptr;  // null: plain, and nothing is remembered

  std::vector<uint32_t> own_offsets_;  // what this rank keeps of its own region
  std::vector<float> own_values_;
  std::span<float> sum_;
  size_t arrived_ = 0;  // values in the sum, of all ranks
  bool spoilt_ = false;
};

}  // namespace thinwire
