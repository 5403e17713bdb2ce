// Rounds: one transport at a time carries the offers of all streams in a round.
// SPDX-License-Identifier: Apache-2.0
#include "exchange/wire/rounds.h"

#include <algorithm>
#include <string>

#include "core/check.h"
#include "exchange/step/stopwatch.h"

namespace thinwire {
Rounds::Rounds(StepContext& context, std::vector<ActiveStream*> streams, bool with_plain, int tag)
    : context_(context),
      streams_(std::move(streams)),
      layouts_{plan_rounds(streams_, with_plain, false), plan_rounds(streams_, with_plain, true)},
      reduction_(context, tag),
      message_(context, tag) {}

std::span<float> Rounds::floats() noexcept {
  return floats_.floats(floats_.bytes().size() / sizeof(float));
}

void Rounds::begin() {
  round_ = joined_ = 0;
  spoilt_ = false;
  if (!layout().empty()) open_round();
}

void Rounds::open_round() {
  message_size_ = 0;
  if (from_root())
    message_.begin(root(), std::max(plan().size, kFrameHeaderSize));
  else
    floats_ = context_.buffers.take(plan().size);
}

void Rounds::join(size_t member) {
  ++joined_;
  spoilt_ = spoilt_ || !streams_[member]->finite();
  if (layout().empty()) return;
  for (const Part& part : plan().parts)
    if (part.member == member) offer(part);
  if (joined_ == streams_.size()) launch();
}

FrameHeader Rounds::header(const ActiveStream& stream) const noexcept {
  FrameHeader header =
      context_.header(stream.codec().info().id, stream.index(), 0, stream.spec().count(), root());
  header.flags = kFrameRound;
  header.round = static_cast<uint8_t>(round_);
  return header;
}

void Rounds::offer(const Part& part) {
  if (spoilt_ || (from_root() && root() != context_.rank())) return;
  ActiveStream& stream = *streams_[part.member];
  if (!from_root()) {
    const auto room =
        std::as_writable_bytes(floats().subspan(part.begin, part.size / sizeof(float)));
    const size_t size = stream.offer(context_, part.round, room);
    THINWIRE_CHECK(size == part.size, "codec '" + std::string(stream.codec().info().name) +
                                          "' offers fewer floats than its round has");
    return;
  }
  const auto frame = message_.room().subspan(message_size_, kFrameHeaderSize + part.size);
  FrameHeader header = this->header(stream);
  header.payload_size = stream.offer(context_, part.round, frame.subspan(kFrameHeaderSize));
  const size_t size = kFrameHeaderSize + header.payload_size;
  seal_frame(header, frame.first(size));
  message_size_ += size;
}

// A root that has nothing to say sends one flagged frame, of the last stream.
void Rounds::launch() {
  if (!from_root()) {
    const ActiveStream& last = *streams_.back();
    const auto rule = plan().combine == Round::Combine::kMax ? FloatReduction::Rule::kMax
                                                             : FloatReduction::Rule::kMean;
    reduction_.begin(rule,
                     {.codec = last.codec().info().id,
                      .stream = last.index(),
                      .round = static_cast<uint8_t>(round_)},
                     floats(), spoilt_);
    return;
  }
  if (root() != context_.rank()) return;
  if (spoilt_) {
    FrameHeader header = this->header(*streams_.back());
    header.flags |= kFrameNonFinite;
    seal_frame(header, message_.room().first(kFrameHeaderSize));
    message_size_ = kFrameHeaderSize;
  }
  message_.send(message_size_);
}

bool Rounds::advance() {
  if (joined_ < streams_.size() || done()) return false;
  bool moved = from_root() ? message_.advance() : reduction_.advance();
  if (from_root() ? !message_.done() : !reduction_.done()) return moved;
  adopt();
  if (++round_ == layout().size()) return true;
  const Stopwatch watch(context_.compress_seconds);
  open_round();
  for (const Part& part : plan().parts) offer(part);
  launch();
  return true;
}

void Rounds::adopt() {
  const Stopwatch watch(context_.compress_seconds);
  if (from_root()) {
    adopt_frames();
    message_.release();
    return;
  }
  if (const size_t at = reduction_.overflow(); at != FloatReduction::npos) {
    const auto of = std::find_if(plan().parts.rbegin(), plan().parts.rend(),
                                 [&](const Part& part) { return part.begin <= at; });
    context_.faults.add(ErrorCode::kNonFinite, streams_[of->member]->index(), -1);
  }
  spoilt_ = spoilt_ || reduction_.spoilt();
  for (const Part& part : plan().parts) {
    if (spoilt_) break;
    const auto result = std::as_bytes(floats().subspan(part.begin, part.size / sizeof(float)));
    ActiveStream& stream = *streams_[part.member];
    if (stream.adopt(part.round, result)) continue;
    context_.faults.add(ErrorCode::kCorrupt, stream.index(), -1);
    spoilt_ = true;
  }
  context_.buffers.give(floats_);
}

// The root reads its own frames as all others do.
void Rounds::adopt_frames() {
  std::span<const std::byte> bytes = message_.bytes();
  const auto corrupt = [&](const ActiveStream& stream) {
    context_.faults.add(ErrorCode::kCorrupt, stream.index(), static_cast<int>(root()));
    spoilt_ = true;
  };
  for (const Part& part : plan().parts) {
    ActiveStream& stream = *streams_[part.member];
    Result<Frame> frame = read_frame(bytes);
    if (!frame) return corrupt(stream);
    const FrameHeader& header = frame.value().header;
    const bool flagged = (header.flags & kFrameNonFinite) != 0;
    const ActiveStream& speaker = flagged ? *streams_.back() : stream;
    if (frame_difference(header, this->header(speaker)) != nullptr) return corrupt(stream);
    bytes = bytes.subspan(kFrameHeaderSize + frame.value().payload.size());
    if (flagged) {
      const bool own_values = round_ == 0;  // later it may speak of somebody else's fault
      context_.faults.add(own_values ? ErrorCode::kNonFinite : ErrorCode::kCorrupt, speaker.index(),
                          own_values ? static_cast<int>(root()) : -1);
      spoilt_ = true;
      break;
    }
    if (spoilt_) continue;
    if (!stream.adopt(part.round, frame.value().payload)) return corrupt(stream);
  }
  if (!bytes.empty()) corrupt(*streams_.back());
}

const Transfer* Rounds::awaited() const noexcept {
  if (round_ == layout().size()) return nullptr;
  return from_root() ? message_.awaited() : reduction_.awaited();
}

}  // namespace thinwire
