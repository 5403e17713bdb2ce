// RoundTrace: the messages of collectives, recorded without sending them, and the time that they
// take.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "thinwire/group.h"
#include "thinwire/step_plan.h"

namespace thinwire {

// What a rank does, in order.
struct TraceOp {
  enum class Kind : uint8_t { kSend, kReceive, kWait };
  Kind kind = Kind::kSend;
  int peer = 0;
  int tag = 0;
  double bytes = 0;
  size_t awaited = 0;  // kWait: which op of this rank must have ended
};
using RankTrace = std::vector<TraceOp>;

// A group of one rank whose messages are noted and never sent: what is received stays as it is. So
// it serves collectives whose course does not depend on what they carry.
class TraceGroup final : public Group {
 public:
  TraceGroup(int rank, int size) : rank_(rank), size_(size) {}

  int rank() const noexcept override { return rank_; }
  int size() const noexcept override { return size_; }
  std::unique_ptr<Transfer> send(std::span<const std::byte> buffer, int to, int tag) override;
  std::unique_ptr<Transfer> receive(std::span<std::byte> buffer, int from, int tag) override;
  void abort(std::string_view /*reason*/) noexcept override {}

  // Throw Error(kUnsupported).
  std::unique_ptr<Group> split(int colour) override;
  void library_all_reduce(std::span<float> values) override;

  // Every byte of the messages that follow stands for so many.
  void set_scale(double scale) noexcept { scale_ = scale; }

  const RankTrace& trace() const noexcept { return trace_; }

 private:
  class Noted;
  std::unique_ptr<Transfer> note(TraceOp op);

  const int rank_, size_;
  double scale_ = 1;
  RankTrace trace_;
};

// Bytes that a rank sends, to those ranks for which `counts`.
double traced_bytes(const RankTrace& trace, const std::function<bool(int to)>& counts);

// When the last rank has done all of its trace, if all begin at the same time. Ranks of a machine
// share its link to other machines; each has one of its own to the ranks of its machine. A message
// occupies the links of both its ends while it travels, and arrives a latency later.
// Throws Error(kContract) if ranks wait for what nobody sends.
double trace_seconds(const std::vector<RankTrace>& traces, const PlanRequest& request);

}  // namespace thinwire
