// Writes and reads sparse payloads, in the blocks of 512 in which positions are coded.
// SPDX-License-Identifier: Apache-2.0
#include "codec/sparse_payload.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <limits>
#include <string>

#include "core/bytes.h"
#include "kernel/position_code.h"

namespace thinwire {
namespace {

constexpr size_t kHeaderSize = 8;

static_assert(kValueBlock == kernel::kPositionBlock);
using Block = std::array<float, kValueBlock>;

// Writes the header and returns the room for values; positions follow.
std::span<std::byte> put_header(ByteWriter& writer, size_t kept, ValueFormat format) {
  writer.put(static_cast<uint32_t>(kept));
  writer.put(static_cast<uint32_t>(format));  // and three zeros
  return writer.take(value_bytes(format, kept));
}

size_t put_positions(const ByteWriter& writer, std::span<const uint32_t> positions,
                     std::span<std::byte> out) {
  return writer.written() + kernel::pack_positions(positions, out.subspan(writer.written()));
}

Status corrupt(const char* what) {
  return Status::fail(ErrorCode::kCorrupt, std::string("sparse payload: ") + what);
}

// Calls visit(place of the block, its positions, their values) for every block of positions.
template <typename Visit>
Status read_sparse(std::span<const std::byte> payload, ValueFormat format, size_t count,
                   const Visit& visit) {
  ByteReader reader(payload);
  const size_t kept = reader.get<uint32_t>();
  const auto sent_as = reader.get<uint32_t>();
  if (reader.ok() && sent_as != static_cast<uint32_t>(format))
    return corrupt("values are not in the agreed format");
  if (kept > count) return corrupt("more values than the stream has");
  ValueReader from(format, reader.take(value_bytes(format, kept)));
  if (!reader.ok()) return Status::fail(ErrorCode::kBadLength, "sparse payload: cut short");

  kernel::PositionReader positions(reader.take(reader.remaining()), count, kept);
  Block block;
  for (auto at = positions.next(); !at.empty(); at = positions.next()) {
    const auto values = std::span(block).first(at.size());
    from.read(values);
    visit(positions.place(), at, values);
  }
  if (!positions.done()) return corrupt("positions contradict the count or the length");
  return from.good() ? Status::ok() : corrupt("a value is not finite or breaks its format");
}

}  // namespace

void require_sparse_stream(std::string_view codec, const StreamSpec& stream) {
  if (stream.count() > std::numeric_limits<uint32_t>::max())
    throw Error(ErrorCode::kUnsupported, std::string(codec) + ": stream '" + stream.name +
                                             "' has more than 2^32 - 1 values");
}

size_t max_sparse_size(size_t count, size_t max_kept, ValueFormat format) noexcept {
  return kHeaderSize + value_bytes(format, max_kept) + kernel::max_position_bytes(count, max_kept);
}

size_t write_sparse(std::span<const uint32_t> positions, std::span<const float> values,
                    ValueFormat format, std::span<std::byte> out, std::span<float> left) {
  assert(positions.size() == values.size());
  ByteWriter writer(out);
  const float mean = sent_mean(format, values.size(), [&](size_t i) { return values[i]; });
  ValueWriter to(format, mean, put_header(writer, values.size(), format));
  for (size_t begin = 0; begin < values.size(); begin += kValueBlock) {
    const size_t kept = std::min(kValueBlock, values.size() - begin);
    to.write(values.subspan(begin, kept), left.empty() ? left : left.subspan(begin, kept));
  }
  return put_positions(writer, positions, out);
}

size_t write_sparse_at(std::span<const uint32_t> positions, std::span<const float> values,
                       ValueFormat format, std::span<std::byte> out, std::span<float> rest) {
  ByteWriter writer(out);
  const float mean =
      sent_mean(format, positions.size(), [&](size_t i) { return values[positions[i]]; });
  ValueWriter to(format, mean, put_header(writer, positions.size(), format));
  Block block;
  for (size_t begin = 0; begin < positions.size(); begin += block.size()) {
    const auto at = positions.subspan(begin, std::min(block.size(), positions.size() - begin));
    const auto left = std::span(block).first(at.size());
    for (size_t i = 0; i < at.size(); ++i) left[i] = values[at[i]];
    to.write(left, left);
    if (!rest.empty())
      for (size_t i = 0; i < at.size(); ++i) rest[at[i]] = left[i];
  }
  return put_positions(writer, positions, out);
}

Status add_sparse(std::span<const std::byte> payload, ValueFormat format, float weight,
                  std::span<float> out) {
  return read_sparse(payload, format, out.size(), [&](const auto& /*place*/, auto at, auto values) {
    for (size_t i = 0; i < at.size(); ++i) out[at[i]] += weight * values[i];
  });
}

Status visit_sparse(std::span<const std::byte> payload, ValueFormat format, size_t count,
                    const KeptVisitor& visitor) {
  return read_sparse(payload, format, count,
                     [&](const auto& /*place*/, auto at, auto values) { visitor(at, values); });
}

Result<SparseParts> check_sparse(std::span<const std::byte> payload, ValueFormat format,
                                 size_t count) {
  SparseParts parts;
  const Status status =
      read_sparse(payload, format, count, [&](const auto& place, auto at, auto /*values*/) {
        parts.kept += at.size();
        parts.places.push_back(place);
      });
  if (!status) return status;
  const auto body = payload.subspan(kHeaderSize);
  parts.values = body.first(value_bytes(format, parts.kept));
  parts.positions = body.subspan(parts.values.size());
  return parts;
}

}  // namespace thinwire
