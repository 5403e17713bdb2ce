// StepContext: what all parts of a step share: channel, step number, faults and times.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "comm/other_ranks.h"
#include "core/buffer_pool.h"
#include "exchange/step/attendance.h"
#include "exchange/step/tensor_table.h"
#include "exchange/step/verdict.h"
#include "thinwire/codec.h"
#include "thinwire/frame.h"
#include "thinwire/group.h"

namespace thinwire {

// Who writes what, and when:
//   between steps                       generation, first, stride
//   StepRunner::begin                   call.step, gives_zeros; it resets faults, left_out,
//                                       some_left_out and seconds
//   when attendance is known            factor
//   during a step, by all its parts     faults, buffers, compress_seconds, decompress_seconds
//   FaultyRanks::agree                  left_out, some_left_out
struct StepContext {
  Group& group;
  TensorTable& tensors;
  uint32_t generation = 0;
  Call call = {};  // seed, step, this rank's salt
  FaultLog faults = {};
  Attendance attendance = Attendance(group);
  float factor = 1;            // of this rank's gradients
  bool gives_zeros = false;    // whatever this rank's tensors hold: it asked to skip the step
  bool left_out = false;       // this rank's values do not count in the step
  bool some_left_out = false;  // those of any rank; the same on all
  BufferPool buffers = {};
  double compress_seconds = 0;
  double decompress_seconds = 0;
  int first = 0, stride = 1;  // rank r is rank first + r x stride of the exchange

  int number_of(int of_rank) const noexcept { return first + of_rank * stride; }
  size_t ranks() const noexcept { return static_cast<size_t>(group.size()); }
  size_t rank() const noexcept { return static_cast<size_t>(group.rank()); }
  bool takes_part(size_t of_rank) const noexcept { return attendance.takes_part(of_rank); }
  bool sits_out() const noexcept { return !attendance.takes_part(rank()); }
  // The same on all ranks.
  bool all_count() const noexcept { return attendance.count() == ranks() && !some_left_out; }

  // Calls body(rank, peers[rank]) for every other rank, in the order of for_other_ranks.
  template <typename Peers, typename Body>
  void for_others(Peers& peers, const Body& body) const {
    for_other_ranks(group, [&](size_t other) { body(static_cast<int>(other), peers[other]); });
  }

  // The header that a contribution of `sender` has in this step: `count` values from `place` on.
  FrameHeader header(uint8_t codec, size_t stream, size_t place, size_t count,
                     size_t sender) const noexcept {
    FrameHeader header;
    header.codec = codec;
    header.sender = static_cast<uint16_t>(sender);
    header.generation = generation;
    header.stream = static_cast<uint32_t>(stream);
    header.step = call.step;
    header.place = place;
    header.count = count;
    return header;
  }
};

}  // namespace thinwire
