// Frames: 48 bytes of header in front of every payload that travels.
//
//   offset  type  field
//        0  u16   magic, 0x5754: the bytes "TW"
//        2  u8    version, 2
//        3  u8    codec id
//        4  u8    flags: 1 = the sender's values were not finite and there is no payload;
//                 2 = the payload is of a round before encoding; 4 = the payload is a result
//        5  u8    round, from 0; 0 without flag 2
//        6  u16   sender, a rank
//        8  u32   generation of the group
//       12  u32   stream
//       16  u48   step
//       22  u48   place of the values: in the stream, in the floats of the round, or their region
//       28  u48   count of values
//       34  u48   payload size in bytes
//       40  u64   XXH3-64 (seed 0) of the 40 bytes above and then the payload
//
// SPDX-License-Identifier: Apache-2.0
#include "thinwire/frame.h"

#include <string>

#include "core/bytes.h"
#include "core/check.h"
#include "core/checksum.h"

namespace thinwire {
namespace {

constexpr uint16_t kMagic = 0x5754;
constexpr uint8_t kVersion = 2;
constexpr size_t kChecked = kFrameHeaderSize - sizeof(uint64_t);  // header bytes under the checksum
constexpr uint8_t kKnownFlags = kFrameNonFinite | kFrameRound | kFrameResult;

void put_u48(ByteWriter& writer, uint64_t number, const char* what) {
  THINWIRE_CHECK(number <= kFrameFieldMax,
                 std::string("frame: ") + what + " " + std::to_string(number) + " exceeds 48 bits");
  writer.put(static_cast<uint32_t>(number));
  writer.put(static_cast<uint16_t>(number >> 32));
}

uint64_t get_u48(ByteReader& reader) {
  const uint64_t low = reader.get<uint32_t>();
  return low | uint64_t{reader.get<uint16_t>()} << 32;
}

}  // namespace

void seal_frame(const FrameHeader& header, std::span<std::byte> frame) {
  THINWIRE_CHECK(
      frame.size() >= kFrameHeaderSize && frame.size() - kFrameHeaderSize == header.payload_size,
      "frame: the span is not header plus payload");
  ByteWriter writer(frame);
  writer.put(kMagic);
  writer.put(kVersion);
  writer.put(header.codec);
  writer.put(header.flags);
  writer.put(header.round);
  writer.put(header.sender);
  writer.put(header.generation);
  writer.put(header.stream);
  put_u48(writer, header.step, "step");
  put_u48(writer, header.place, "place");
  put_u48(writer, header.count, "count");
  put_u48(writer, header.payload_size, "payload size");
  writer.put(checksum(frame.first(kChecked), frame.subspan(kFrameHeaderSize)));
}

Result<Frame> read_frame(std::span<const std::byte> bytes) {
  const auto fail = [](ErrorCode code, const std::string& why) {
    return Status::fail(code, "frame: " + why);
  };
  if (bytes.size() < kFrameHeaderSize)
    return fail(ErrorCode::kBadLength,
                std::to_string(bytes.size()) + " bytes are too few for a header");
  ByteReader reader(bytes);
  if (reader.get<uint16_t>() != kMagic) return fail(ErrorCode::kCorrupt, "foreign magic");
  if (const auto version = reader.get<uint8_t>(); version != kVersion)
    return fail(ErrorCode::kMismatch,
                "version " + std::to_string(version) + ", this is " + std::to_string(kVersion));
  Frame frame;
  FrameHeader& header = frame.header;
  header.codec = reader.get<uint8_t>();
  header.flags = reader.get<uint8_t>();
  header.round = reader.get<uint8_t>();
  header.sender = reader.get<uint16_t>();
  header.generation = reader.get<uint32_t>();
  header.stream = reader.get<uint32_t>();
  header.step = get_u48(reader);
  header.place = get_u48(reader);
  header.count = get_u48(reader);
  header.payload_size = get_u48(reader);
  const auto sum = reader.get<uint64_t>();
  if (header.payload_size > reader.remaining())
    return fail(ErrorCode::kBadLength, "payload of " + std::to_string(header.payload_size) +
                                           " bytes, but " + std::to_string(reader.remaining()) +
                                           " are there");
  frame.payload = reader.take(header.payload_size);
  if (sum != checksum(bytes.first(kChecked), frame.payload))
    return fail(ErrorCode::kCorrupt, "wrong checksum");
  if ((header.flags & ~kKnownFlags) != 0 ||
      ((header.flags & kFrameRound) == 0 && header.round != 0))
    return fail(ErrorCode::kCorrupt, "unknown flags");
  if ((header.flags & kFrameNonFinite) != 0 && header.payload_size != 0)
    return fail(ErrorCode::kCorrupt, "flagged as non-finite, but has a payload");
  return frame;
}

}  // namespace thinwire
