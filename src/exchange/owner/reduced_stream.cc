// ReducedStream: sends parts to owners, adds up, hands out the largest sums and keeps the rest.
// SPDX-License-Identifier: Apache-2.0
#include "exchange/owner/reduced_stream.h"

#include <algorithm>
#include <functional>

#include "exchange/rules/mean_weight.h"
#include "exchange/state/stream_keys.h"
#include "kernel/axpy.h"
#include "stream/memory_slot.h"

namespace thinwire {
namespace {

size_t ceil_div(size_t a, size_t b) { return (a + b - 1) / b; }

}  // namespace

ReducedStream::ReducedStream(StepContext& context, ActiveStream& stream, Store& store)
    : context_(context),
      stream_(stream),
      stripes_(stream.spec().count(), context.ranks()),
      coder_(stream.codec().info().values),
      first_(stream.first() % context.ranks()),
      own_(region_of(context.rank())),
      kept_limit_(stream.codec().max_kept(stream.spec())) {
  if (stream.is_plain()) return;
  const size_t count = stream.spec().count();
  const std::vector<Range> shard = own_ ? stripes_.ranges(*own_) : std::vector<Range>{};
  memory_ = &open_memory<OwnerMemory>(
      store, owner_key(stream.spec().name), "residual of " + std::to_string(count),
      [&] { return std::make_unique<OwnerMemory>(count, shard, context.ranks()); });
  memory_->move_to(shard);
}

std::optional<uint32_t> ReducedStream::region_of(size_t rank) const noexcept {
  return stripes_.region_of(rank, context_.ranks(), first_);
}

// Twice a region's share of what the codec may keep, and a few for the scatter of small numbers. It
// bounds the memory and the traffic of owners for any values; what is more stays with its rank.
size_t ReducedStream::most(uint32_t region) const noexcept {
  constexpr size_t kScatter = 16;
  const size_t share = ceil_div(kept_limit_, stripes_.regions());
  return std::min(stripes_.size(region), 2 * share + kScatter);
}

size_t ReducedStream::limit(uint32_t region) const noexcept {
  return kFrameHeaderSize + coder_.max_size(stripes_.size(region), most(region));
}

FrameHeader ReducedStream::header(uint32_t region, size_t sender) const noexcept {
  return context_.header(coder_.sparse_id(), stream_.index(), region, stripes_.size(region),
                         sender);
}

FrameHeader ReducedStream::result_header(uint32_t region, size_t owner) const noexcept {
  return as_result(header(region, owner));
}

void ReducedStream::seal(FrameHeader header, bool dense, size_t payload_size, Outbox& out) {
  if (dense) header.codec = coder_.dense_id();
  header.payload_size = payload_size;
  seal_frame(header, out.room().first(kFrameHeaderSize + payload_size));
  out.used += kFrameHeaderSize + payload_size;
  stream_.meter().add_frame(payload_size);
  if (dense) stream_.meter().add_dense_frame();
}

void ReducedStream::flag(FrameHeader header, Outbox& out) {
  header.flags |= kFrameNonFinite;
  seal_frame(header, out.room().first(kFrameHeaderSize));
  out.used += kFrameHeaderSize;
}

void ReducedStream::send(KeptRouter& router, std::span<std::byte> scratch,
                         std::span<Outbox> to_ranks) {
  stream_.prepare(context_);
  if (context_.sits_out()) return;  // result() is zero already
  const bool finite = stream_.finite();
  size_t withheld = 0;
  if (finite) {
    const auto payload = stream_.begin_kept(context_, scratch);
    if (stream_.is_plain())
      router.route_all(stripes_, stream_.signal());
    else
      router.route(stripes_, stream_.decoder(), payload).or_throw();  // of its own encoder
  }
  for (size_t rank = 0; rank < to_ranks.size(); ++rank) {
    const auto region = region_of(rank);
    if (!region) continue;
    if (!finite) {
      if (rank != context_.rank()) flag(header(*region, context_.rank()), to_ranks[rank]);
      continue;
    }
    withheld += router.withhold(*region, most(*region), stream_.rest());
    const KeptPart part = router.part(*region);
    if (rank != context_.rank()) {
      write_part(part, *region, to_ranks[rank]);
      continue;
    }
    own_offsets_.assign(part.offsets.begin(), part.offsets.end());
    own_values_.assign(part.values.begin(), part.values.end());
  }
  if (finite) stream_.end_kept(withheld);
  const std::span<float> result = stream_.result();
  std::fill(result.begin(), result.end(), 0.0f);
}

// What the value format loses of a part that was decoded from the codec's payload stays with the
// rank: int8 has other blocks here than there. All other formats lose nothing more.
void ReducedStream::write_part(const KeptPart& part, uint32_t region, Outbox& out) {
  const size_t count = stripes_.size(region);
  const auto payload = out.room().subspan(kFrameHeaderSize);
  const size_t size = coder_.write(count, part.offsets, part.values, payload, part.values);
  const std::span<float> rest = stream_.rest();
  for (size_t i = 0; i < part.values.size() && !rest.empty(); ++i)
    rest[part.positions[i]] += part.values[i];
  seal(header(region, context_.rank()), coder_.is_dense(count, part.values.size()), size, out);
}

void ReducedStream::begin_sum(std::span<float> sum) {
  sum_ = sum;
  std::fill(sum.begin(), sum.end(), 0.0f);
  arrived_ = 0;
  spoilt_ = false;
}

void ReducedStream::add_own() {
  if (!stream_.finite()) return spoil();  // noted when it was found
  for (size_t i = 0; i < own_offsets_.size(); ++i) sum_[own_offsets_[i]] += own_values_[i];
  arrived_ += own_offsets_.size();
}

void ReducedStream::corrupt(size_t sender) {
  context_.faults.add(ErrorCode::kCorrupt, stream_.index(), static_cast<int>(sender));
}

FrameOutcome ReducedStream::open(std::span<const std::byte> bytes, FrameHeader expected,
                                 Frame& frame) {
  Result<Frame> read = read_frame(bytes);
  if (!read) {
    corrupt(expected.sender);
    return {};
  }
  frame = read.value();
  FrameOutcome outcome{.kind = FrameOutcome::Kind::kAdded,
                       .size = kFrameHeaderSize + frame.payload.size()};
  if (frame.header.codec == coder_.dense_id()) expected.codec = coder_.dense_id();
  if (frame_difference(frame.header, expected) != nullptr) {
    corrupt(expected.sender);
    outcome.kind = FrameOutcome::Kind::kCorrupt;
  } else if ((frame.header.flags & kFrameNonFinite) != 0) {
    outcome.kind = FrameOutcome::Kind::kFlagged;
  }
  return outcome;
}

size_t ReducedStream::add(std::span<const std::byte> bytes, size_t sender) {
  Frame frame;
  const FrameHeader expected = header(*own_, sender);
  const FrameOutcome outcome = open(bytes, expected, frame);
  const uint8_t id = frame.header.codec;
  const bool added = was_added(context_, expected, outcome);
  if (added && coder_.add(id, frame.payload, sum_)) {
    arrived_ += coder_.kept(id, frame.payload, sum_.size());
    return outcome.size;
  }
  if (added) corrupt(sender);
  spoil();
  return outcome.size;
}

// The mean and what this rank owes, where `values` lie; false if it cannot be given.
bool ReducedStream::form_mean(std::span<float>& values) {
  if (spoilt_) return false;
  kernel::scale(sum_, mean_weight(context_.ranks()));
  values = sum_;
  Moments moments;
  if (memory_ != nullptr) {
    const OwnerMemory::Sum owed = memory_->add_whole(sum_);
    values = owed.values;
    moments = owed.moments;
  } else {
    moments = measure(sum_);
  }
  if (moments.finite) return true;
  context_.faults.add(ErrorCode::kNonFinite, stream_.index(), -1);  // each was: the sum overflowed
  return false;
}

// As many as a rank sent on average.
void ReducedStream::reduce(kernel::TopSelector& selector, Outbox& out) {
  const FrameHeader header = result_header(*own_, context_.rank());
  std::span<float> values;
  if (!form_mean(values)) return flag(header, out);  // this rank has noted why
  const size_t count = values.size();
  const size_t kept = std::min(ceil_div(arrived_, context_.attendance.count()), most(*own_));
  const bool dense = coder_.is_dense(count, kept);
  const auto payload = out.room().subspan(kFrameHeaderSize);
  if (dense) return seal(header, true, coder_.write_all(values, payload), out);
  selector.aim(count, kept);
  seal(header, false, coder_.write_at(selector.select(values), values, payload), out);
}

size_t ReducedStream::take(std::span<const std::byte> bytes, uint32_t region, size_t owner) {
  Frame frame;
  const FrameOutcome outcome = open(bytes, result_header(region, owner), frame);
  if (outcome.kind != FrameOutcome::Kind::kAdded)
    return outcome.size;  // flagged: the owner noted why
  const std::span<float> result = stream_.result();
  size_t kept = 0;
  const auto put = [&](std::span<const uint32_t> offsets, std::span<const float> values) {
    for (size_t i = 0; i < offsets.size(); ++i)
      result[stripes_.position(region, offsets[i])] = values[i];
    kept += offsets.size();
  };
  if (!coder_.visit(frame.header.codec, frame.payload, stripes_.size(region), std::cref(put)))
    corrupt(owner);
  stream_.meter().add_reduced(kept);
  return outcome.size;
}

void ReducedStream::end(bool skipped) noexcept {
  if (memory_ != nullptr) skipped ? memory_->rollback() : memory_->commit();
}

}  // namespace thinwire
