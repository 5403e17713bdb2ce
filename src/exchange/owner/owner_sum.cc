// OwnerSum: reads contributions from frames, adds them, and writes the results to frames.
// SPDX-License-Identifier: Apache-2.0
#include "exchange/owner/owner_sum.h"

#include <algorithm>

#include "exchange/step/stopwatch.h"
#include "kernel/axpy.h"

namespace thinwire {
namespace {

FrameHeader contribution_header(const StepContext& context, const ChunkPart& part, size_t sender) {
  return context.header(part.stream->codec().info().id, part.stream->index(), part.range.begin,
                        part.range.count, sender);
}

FrameHeader result_header(const StepContext& context, const ChunkPart& part, size_t owner) {
  return as_result(contribution_header(context, part, owner));
}

template <typename Byte>
std::span<Byte> frame_of(const ChunkPart& part, std::span<Byte> message) {
  return message.subspan(part.offset, part.coder->room);
}

std::span<float> place_of(const ChunkPart& part) {
  return part.stream->result().subspan(part.range.begin, part.range.count);
}

// Calls body(i, part, its values in `values`) for the parts of a chunk.
template <typename Body>
void for_parts(const Chunk& chunk, std::span<float> values, const Body& body) {
  for (size_t i = 0; i < chunk.parts.size(); ++i) {
    const size_t count = chunk.parts[i].range.count;
    body(i, chunk.parts[i], values.first(count));
    values = values.subspan(count);
  }
}

// Encodes an owner's result, where there is one, else writes a flag. `rest` receives what the
// encoding loses.
void write_result_frame(StepContext& context, const ChunkPart& part, const Signal& signal,
                        bool is_good, std::span<float> rest, std::span<std::byte> frame) {
  FrameHeader header = result_header(context, part, context.rank());
  if (!is_good) {
    header.flags |= kFrameNonFinite;
  } else {
    Call call = context.call;
    call.salt += context.ranks();  // another draw than for this rank's own values
    call.offset = part.range.begin;
    const Encoded encoded =
        part.coder->encoder->encode(signal, call, frame.subspan(kFrameHeaderSize), rest);
    part.coder->encoder->rollback();
    part.stream->meter().add_kept(encoded);
    part.stream->meter().add_frame(encoded.size);
    header.payload_size = encoded.size;
  }
  const size_t size = kFrameHeaderSize + header.payload_size;
  seal_frame(header, frame.first(size));
  pad_frame(part.stream->codec(), frame, size);
}

}  // namespace

void write_contribution(StepContext& context, const Chunk& chunk, std::span<std::byte> message) {
  const Stopwatch watch(context.compress_seconds);
  for (const ChunkPart& part : chunk.parts) {
    const auto frame = frame_of(part, message);
    const auto [begin, count] = part.range;
    pad_frame(part.stream->codec(), frame,
              part.stream->write_frame(context, *part.coder->encoder, begin, count, frame));
    part.coder->encoder->rollback();  // it serves other frames too, and remembers none
  }
}

void write_kept_result(StepContext& context, const Chunk& chunk, std::span<std::byte> message) {
  const Stopwatch watch(context.compress_seconds);
  for (const ChunkPart& part : chunk.parts) {
    const Signal signal{.values = place_of(part), .fresh = {}, .moments = measure(place_of(part))};
    if (!signal.moments->finite)
      context.faults.add(ErrorCode::kNonFinite, part.stream->index(), -1);
    write_result_frame(context, part, signal, signal.moments->finite, {}, frame_of(part, message));
  }
}

void take_result(StepContext& context, const Chunk& chunk, std::span<const std::byte> message,
                 size_t owner) {
  const Stopwatch watch(context.decompress_seconds);
  for (const ChunkPart& part : chunk.parts)
    part.stream->take_mean_part(context, result_header(context, part, owner), *part.coder->decoder,
                                frame_of(part, message));
}

OwnerSum::OwnerSum(StepContext& context, const Combine& rule, Own own, const Most& most,
                   std::span<OwnerMemory* const> memories)
    : context_(context),
      own_(own),
      memories_(memories),
      contributions_(rule, context.ranks(), most.count),
      own_room_(most.size),
      spoilt_(most.parts) {}

void OwnerSum::begin(const Chunk& chunk) {
  const Stopwatch watch(context_.decompress_seconds);
  chunk_ = &chunk;
  contributions_.begin(chunk.count, context_.attendance.count());
  std::fill(spoilt_.begin(), spoilt_.end(), false);
}

void OwnerSum::add_own() {
  const Stopwatch watch(context_.decompress_seconds);
  for_parts(
      *chunk_, contributions_.next(), [&](size_t i, const ChunkPart& part, std::span<float> sum) {
        ActiveStream& stream = *part.stream;
        const bool coded = own_ == Own::kCoded || stream.codec().info().vote;
        const bool added =
            coded ? stream.add_own_coded(context_, *part.coder, part.range.begin, own_room_, sum)
                  : stream.add_own(context_, part.range.begin, sum);
        if (!added) spoilt_[i] = true;  // noted when it was found
      });
}

void OwnerSum::add(size_t rank, std::span<const std::byte> message) {
  const Stopwatch watch(context_.decompress_seconds);
  for_parts(
      *chunk_, contributions_.next(), [&](size_t i, const ChunkPart& part, std::span<float> sum) {
        const FrameHeader expected = contribution_header(context_, part, rank);
        const FrameOutcome outcome =
            add_frame(context_, expected, *part.coder->decoder, frame_of(part, message), 1.0f, sum);
        if (!was_added(context_, expected, outcome)) spoilt_[i] = true;
      });
}

void OwnerSum::add_statistics(std::span<double> statistics) {
  const Stopwatch watch(context_.decompress_seconds);
  if (const auto remembered = contributions_.remembered(); !remembered.empty())
    for_parts(*chunk_, remembered,
              [&](size_t /*i*/, const ChunkPart& part, std::span<float> values) {
                const auto of_stream = part.stream->remembered_values();
                std::copy_n(of_stream.begin() + static_cast<std::ptrdiff_t>(part.range.begin),
                            values.size(), values.begin());
              });
  contributions_.add_statistics(statistics);
}

void OwnerSum::write_result(std::span<std::byte> message, std::span<const float> row_weights) {
  const Stopwatch watch(context_.compress_seconds);
  for_parts(*chunk_, contributions_.combine(row_weights),
            [&](size_t i, const ChunkPart& part, std::span<float> result) {
              write_part(i, part, result, frame_of(part, message));
            });
}

void OwnerSum::take_own_result(std::span<const std::byte> message) {
  const Stopwatch watch(context_.decompress_seconds);
  for (size_t i = 0; i < chunk_->parts.size(); ++i) {
    const ChunkPart& part = chunk_->parts[i];
    const auto payload = frame_of(part, message).subspan(kFrameHeaderSize);
    part.stream->take_own_part(context_, part.range.begin, part.range.count, *part.coder->decoder,
                               payload, !spoilt_[i]);
  }
}

void OwnerSum::keep_result(std::span<const float> row_weights) {
  const Stopwatch watch(context_.decompress_seconds);
  for_parts(*chunk_, contributions_.combine(row_weights),
            [&](size_t i, const ChunkPart& part, std::span<float> result) {
              if (!spoilt_[i] && !measure(result).finite) {  // each was finite: the sum overflowed
                context_.faults.add(ErrorCode::kNonFinite, part.stream->index(), -1);
                spoilt_[i] = true;
              }
              if (spoilt_[i])
                kernel::fill(place_of(part), 0.0f);
              else
                std::copy(result.begin(), result.end(), place_of(part).begin());
            });
}

void OwnerSum::write_part(size_t index, const ChunkPart& part, std::span<float> result,
                          std::span<std::byte> frame) {
  ActiveStream& stream = *part.stream;
  OwnerMemory* const memory = memories_.empty() ? nullptr : memories_[stream.index()];
  Signal signal{.values = result, .fresh = {}, .moments = {}};
  std::span<float> rest;
  if (!spoilt_[index]) {
    if (memory != nullptr) {
      const OwnerMemory::Sum owed = memory->add(part.range.begin, result);
      signal = {.values = owed.values, .fresh = result, .moments = owed.moments};
      rest = owed.values;
    } else {
      signal.moments = measure(result);
    }
    if (!signal.moments->finite) {  // each was finite: the sum overflowed
      context_.faults.add(ErrorCode::kNonFinite, stream.index(), -1);
      spoilt_[index] = true;
    }
  }
  write_result_frame(context_, part, signal, !spoilt_[index], rest, frame);
}

}  // namespace thinwire
