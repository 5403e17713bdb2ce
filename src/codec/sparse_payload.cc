// Values go through a block of 512 on the stack, the same blocks that positions are coded in.
// SPDX-License-Identifier: Apache-2.0
#include "codec/sparse_payload.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cassert>
#include <cstring>
#include <limits>
#include <string>

#include "core/bytes.h"
#include "kernel/half_float.h"
#include "kernel/position_code.h"

namespace thinwire {
namespace {

constexpr size_t kHeaderSize = 8;

using Block = std::array<float, kernel::kPositionBlock>;

constexpr size_t value_size(ValueFormat format) { return format == ValueFormat::kFp32 ? 4 : 2; }

void encode_values(ValueFormat format, std::span<const float> values, std::span<std::byte> out,
                   std::span<float> left) {
  switch (format) {
    case ValueFormat::kFp32:
      if (!values.empty()) std::memcpy(out.data(), values.data(), values.size_bytes());
      std::fill(left.begin(), left.end(), 0.0f);
      break;
    case ValueFormat::kFp16:
      kernel::to_half_saturated(values, out, left);
      break;
    case ValueFormat::kBf16:
      kernel::to_bfloat_saturated(values, out, left);
      break;
  }
}

// Whether all decoded values are finite.
bool decode_values(ValueFormat format, std::span<const std::byte> bytes, std::span<float> out) {
  if (format == ValueFormat::kFp16) return kernel::from_half(bytes, out);
  if (format == ValueFormat::kBf16) return kernel::from_bfloat(bytes, out);
  std::memcpy(out.data(), bytes.data(), bytes.size());
  uint32_t largest = 0;
  for (const float value : out)
    largest = std::max(largest, std::bit_cast<uint32_t>(value) & 0x7fffffff);
  return largest < std::bit_cast<uint32_t>(std::numeric_limits<float>::infinity());
}

// Writes the header and returns the room for values; positions follow.
std::span<std::byte> put_header(ByteWriter& writer, size_t kept, ValueFormat format) {
  writer.put(static_cast<uint32_t>(kept));
  writer.put(static_cast<uint32_t>(format));  // and three zeros
  return writer.take(kept * value_size(format));
}

size_t put_positions(const ByteWriter& writer, std::span<const uint32_t> positions,
                     std::span<std::byte> out) {
  return writer.written() + kernel::pack_positions(positions, out.subspan(writer.written()));
}

Status corrupt(const char* what) {
  return Status::fail(ErrorCode::kCorrupt, std::string("sparse payload: ") + what);
}

}  // namespace

OptionInfo value_format_option() {
  return {.name = "values",
          .type = OptionType::kChoice,
          .fallback = "fp32",
          .choices = {"fp32", "fp16", "bf16"},
          .help = "what kept values travel as"};
}

ValueFormat value_format(const Options& options) {
  const std::string& name = options.text("values");
  if (name == "fp16") return ValueFormat::kFp16;
  if (name == "bf16") return ValueFormat::kBf16;
  return ValueFormat::kFp32;
}

void require_sparse_stream(std::string_view codec, const StreamSpec& stream) {
  if (stream.count() > std::numeric_limits<uint32_t>::max())
    throw Error(ErrorCode::kUnsupported, std::string(codec) + ": stream '" + stream.name +
                                             "' has more than 2^32 - 1 values");
}

size_t max_sparse_size(size_t count, size_t max_kept, ValueFormat format) noexcept {
  return kHeaderSize + max_kept * value_size(format) + kernel::max_position_bytes(count, max_kept);
}

size_t write_sparse(std::span<const uint32_t> positions, std::span<const float> values,
                    ValueFormat format, std::span<std::byte> out, std::span<float> left) {
  assert(positions.size() == values.size());
  ByteWriter writer(out);
  encode_values(format, values, put_header(writer, values.size(), format), left);
  return put_positions(writer, positions, out);
}

size_t write_sparse_at(std::span<const uint32_t> positions, std::span<const float> values,
                       ValueFormat format, std::span<std::byte> out, std::span<float> rest) {
  ByteWriter writer(out);
  std::span<std::byte> bytes = put_header(writer, positions.size(), format);
  Block block;
  for (size_t begin = 0; begin < positions.size(); begin += block.size()) {
    const size_t kept = std::min(block.size(), positions.size() - begin);
    const auto at = positions.subspan(begin, kept);
    const auto left = std::span(block).first(kept);
    for (size_t i = 0; i < kept; ++i) left[i] = values[at[i]];
    encode_values(format, left, bytes.first(kept * value_size(format)), left);
    bytes = bytes.subspan(kept * value_size(format));
    if (!rest.empty())
      for (size_t i = 0; i < kept; ++i) rest[at[i]] = left[i];
  }
  return put_positions(writer, positions, out);
}

Status add_sparse(std::span<const std::byte> payload, ValueFormat format, float weight,
                  std::span<float> out) {
  ByteReader reader(payload);
  const size_t kept = reader.get<uint32_t>();
  const auto sent_as = reader.get<uint32_t>();
  if (reader.ok() && sent_as != static_cast<uint32_t>(format))
    return corrupt("values are not in the agreed format");
  if (kept > out.size()) return corrupt("more values than the stream has");
  std::span<const std::byte> bytes = reader.take(kept * value_size(format));
  if (!reader.ok()) return Status::fail(ErrorCode::kBadLength, "sparse payload: cut short");

  kernel::PositionReader positions(reader.take(reader.remaining()), out.size(), kept);
  Block block;
  bool finite = true;
  for (auto at = positions.next(); !at.empty(); at = positions.next()) {
    const auto values = std::span(block).first(at.size());
    finite &= decode_values(format, bytes.first(at.size() * value_size(format)), values);
    bytes = bytes.subspan(at.size() * value_size(format));
    for (size_t i = 0; i < at.size(); ++i) out[at[i]] += weight * values[i];
  }
  if (!positions.done()) return corrupt("positions contradict the count or the length");
  return finite ? Status::ok() : corrupt("value is not finite");
}

}  // namespace thinwire
