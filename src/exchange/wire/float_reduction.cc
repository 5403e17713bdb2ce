// FloatReduction: parts go to owners and results to all ranks, in two direct steps as in dense.cc.
// SPDX-License-Identifier: Apache-2.0
#include "exchange/wire/float_reduction.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "exchange/rules/mean_weight.h"
#include "exchange/step/stopwatch.h"
#include "exchange/wire/frames.h"
#include "kernel/add_floats.h"
#include "kernel/axpy.h"

namespace thinwire {
namespace {

constexpr size_t size_of(size_t count) {
  return count == 0 ? 0 : kFrameHeaderSize + count * sizeof(float);
}

}  // namespace

FloatReduction::FloatReduction(StepContext& context, int tag)
    : context_(context), tag_(tag), peers_(context.ranks()) {}

std::span<float> FloatReduction::sum() noexcept {
  return sum_.floats(shard(context_.rank()).size());
}

// A shard without floats has no messages.
void FloatReduction::begin(Rule rule, const Subject& subject, std::span<float> values,
                           bool spoilt) {
  rule_ = rule;
  subject_ = subject;
  values_ = values;
  spoilt_ = sum_spoilt_ = spoilt;
  overflow_ = npos;
  next_ = taken_ = 0;
  sent_ = false;
  const size_t own_size = size_of(shard(context_.rank()).size());
  context_.for_others(peers_, [&](int rank, Peer& peer) {
    const std::span<float> theirs = shard(static_cast<size_t>(rank));
    peer.taken = false;
    if (own_size > 0 && context_.takes_part(static_cast<size_t>(rank))) {
      peer.part_in = context_.buffers.take(own_size);
      peer.receives_part.set(context_.group.receive(peer.part_in.bytes(), rank, tag_));
    }
    if (theirs.empty()) return;
    peer.result_in = context_.buffers.take(size_of(theirs.size()));
    peer.receives_result.set(context_.group.receive(peer.result_in.bytes(), rank, tag_ + 1));
    if (context_.sits_out()) return;
    peer.part_out = context_.buffers.take(size_of(theirs.size()));
    write(part_header(static_cast<size_t>(rank), context_.rank()), theirs, spoilt,
          peer.part_out.bytes());
    peer.sends_part.set(context_.group.send(peer.part_out.bytes(), rank, tag_));
  });
}

bool FloatReduction::advance() {
  bool moved = false;
  for (; next_ < peers_.size() && peers_[next_].receives_part.done(); moved = true) {
    add(next_);
    if (++next_ == peers_.size()) share();
  }
  context_.for_others(peers_, [&](int rank, Peer& peer) {
    if (peer.taken || !peer.receives_result.done()) return;
    take(static_cast<size_t>(rank));
    moved = true;
  });
  if (!sent_ && taken_ == peers_.size() && all_sent()) sent_ = moved = true;
  return moved;
}

const Transfer* FloatReduction::awaited() const noexcept {
  if (next_ < peers_.size()) return peers_[next_].receives_part.transfer();
  for (const Peer& peer : peers_)
    for (const Pending* one : {&peer.receives_result, &peer.sends_part, &peer.sends_result})
      if (one->transfer() != nullptr) return one->transfer();
  return nullptr;
}

FrameHeader FloatReduction::part_header(size_t owner, size_t sender) const noexcept {
  const size_t begin = begin_of(owner);
  FrameHeader header =
      context_.header(subject_.codec, subject_.stream, begin, begin_of(owner + 1) - begin, sender);
  header.flags = kFrameRound;
  header.round = subject_.round;
  return header;
}

FrameHeader FloatReduction::result_header(size_t owner) const noexcept {
  return as_result(part_header(owner, owner));
}

// A flag stands for floats that cannot be given; old memory must not leave behind it.
void FloatReduction::write(FrameHeader header, std::span<const float> values, bool flagged,
                           std::span<std::byte> message) const {
  if (flagged) {
    header.flags |= kFrameNonFinite;
    std::memset(message.data() + kFrameHeaderSize, 0, message.size() - kFrameHeaderSize);
  } else {
    header.payload_size = values.size_bytes();
    std::memcpy(message.data() + kFrameHeaderSize, values.data(), values.size_bytes());
  }
  seal_frame(header, message.first(kFrameHeaderSize + header.payload_size));
}

// The floats of a message, still unchecked; empty when it is flagged, or corrupt, which is noted.
std::span<const std::byte> FloatReduction::read(const FrameHeader& expected,
                                                std::span<const std::byte> message, bool* flagged) {
  *flagged = false;
  Result<Frame> read = read_frame(message);
  if (read && frame_difference(read.value().header, expected) == nullptr) {
    *flagged = (read.value().header.flags & kFrameNonFinite) != 0;
    if (*flagged || read.value().payload.size() == expected.count * sizeof(float))
      return read.value().payload;
  }
  context_.faults.add(ErrorCode::kCorrupt, subject_.stream, expected.sender);
  return {};
}

// Who flags its part of the first round says that its values are not finite. Later it may have seen
// somebody else's fault, and is not to be named: kCorrupt without a name yields to all others.
void FloatReduction::add(size_t rank) {
  const Stopwatch watch(context_.decompress_seconds);
  const std::span<float> own = shard(context_.rank());
  if (rank == 0) {
    sum_ = context_.buffers.take(own.size_bytes());
    kernel::fill(sum(), -0.0f);
    first_ = true;
  }
  if (!context_.takes_part(rank)) return;
  if (rank == context_.rank()) {
    if (!spoilt_) combine(std::as_bytes(own), rank);
    return;
  }
  if (own.empty()) return;
  bool flagged = false;
  const auto floats =
      read(part_header(context_.rank(), rank), peers_[rank].part_in.bytes(), &flagged);
  if (flagged && subject_.round == 0)
    context_.faults.add(ErrorCode::kNonFinite, subject_.stream, static_cast<int>(rank));
  else if (flagged)
    context_.faults.add(ErrorCode::kCorrupt, subject_.stream, -1);
  if (floats.empty())
    sum_spoilt_ = true;
  else
    combine(floats, rank);
  context_.buffers.give(peers_[rank].part_in);
}

void FloatReduction::combine(std::span<const std::byte> floats, size_t rank) {
  bool finite = true;
  if (rule_ == Rule::kMean) {
    finite = kernel::add_floats(floats, 1.0f, sum());
  } else {
    for (size_t i = 0; i < sum().size(); ++i) {
      float value;
      std::memcpy(&value, floats.data() + i * sizeof value, sizeof value);
      finite = finite && std::isfinite(value);
      sum()[i] = first_ ? value : std::max(sum()[i], value);
    }
  }
  first_ = false;
  if (finite) return;
  context_.faults.add(ErrorCode::kCorrupt, subject_.stream, static_cast<int>(rank));
  sum_spoilt_ = true;
}

// Makes the result of this rank's shard and sends it to all.
void FloatReduction::share() {
  const std::span<float> own = shard(context_.rank());
  {
    const Stopwatch watch(context_.compress_seconds);
    if (rule_ == Rule::kMean) kernel::scale(sum(), mean_weight(peers_.size()));
    const auto bad =
        std::find_if(sum().begin(), sum().end(), [](float x) { return !std::isfinite(x); });
    if (!sum_spoilt_ && bad != sum().end()) {  // each was finite: the sum overflowed
      overflow_ = begin_of(context_.rank()) + static_cast<size_t>(bad - sum().begin());
      sum_spoilt_ = true;
    }
    std::copy(sum().begin(), sum().end(), own.begin());
    context_.buffers.give(sum_);
    spoilt_ = spoilt_ || sum_spoilt_;
    if (!own.empty() && peers_.size() > 1) {
      Buffer& message = peers_[context_.rank()].result_in;
      message = context_.buffers.take(size_of(own.size()));
      write(result_header(context_.rank()), own, sum_spoilt_, message.bytes());
    }
  }
  ++taken_;
  if (own.empty()) return;
  context_.for_others(peers_, [&](int rank, Peer& peer) {
    const auto message = peers_[context_.rank()].result_in.bytes();
    peer.sends_result.set(context_.group.send(message, rank, tag_ + 1));
  });
}

void FloatReduction::take(size_t owner) {
  Peer& peer = peers_[owner];
  peer.taken = true;
  ++taken_;
  const std::span<float> to = shard(owner);
  if (to.empty()) return;
  const Stopwatch watch(context_.decompress_seconds);
  bool flagged = false;
  const auto floats = read(result_header(owner), peer.result_in.bytes(), &flagged);
  if (flagged) context_.faults.add(ErrorCode::kCorrupt, subject_.stream, -1);
  if (floats.empty()) {
    spoilt_ = true;
  } else {
    std::memcpy(to.data(), floats.data(), floats.size());
    if (!measure(to).finite) {
      context_.faults.add(ErrorCode::kCorrupt, subject_.stream, static_cast<int>(owner));
      spoilt_ = true;
    }
  }
  context_.buffers.give(peer.result_in);
}

// What has left needs its memory no longer.
bool FloatReduction::all_sent() {
  bool all = true;
  context_.for_others(peers_, [&](int /*rank*/, Peer& peer) {
    if (peer.sends_part.done()) context_.buffers.give(peer.part_out);
    all &= peer.sends_part.done() && peer.sends_result.done();
  });
  if (all) context_.buffers.give(peers_[context_.rank()].result_in);
  return all;
}

}  // namespace thinwire
