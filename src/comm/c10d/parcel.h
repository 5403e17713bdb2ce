// Messages that travel together over a process group: how they lie in a parcel.
//
// A parcel is a head of kHeadSize bytes (magic, number of messages, size of the body, the first kInline
// bytes of the body) and the rest of the body, if any; the body has for each message its context, size,
// tag and kind, and its bytes.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace thinwire {

struct MessageFields {
  uint64_t context = 0;
  uint64_t size = 0;  // bytes
  int32_t tag = 0;
  uint32_t kind = 0;
};

struct ParcelFields {
  uint32_t magic = 0x6431'7774;  // "tw1d"
  uint32_t messages = 1;
  uint64_t size = 0;  // of the body
};

inline constexpr size_t kHeadSize = 128;
inline constexpr size_t kInline = kHeadSize - sizeof(ParcelFields);

// Bytes of a body of several messages: 10 ms at 100 Mbit/s. A longer message goes alone.
inline constexpr size_t kParcel = size_t{1} << 17;

// The head, and what follows it: a copy where there are several messages, the message's own memory
// where there is one.
struct PackedParcel {
  std::vector<std::byte> head, copy;
  std::span<const std::byte> rest;
};

struct MessageView {
  MessageFields fields;
  std::span<const std::byte> bytes;  // fields.size of them
};
PackedParcel pack_parcel(std::span<const MessageView> messages);

// A head that arrived, and the first message's fields. False for what is none.
bool read_head(std::span<const std::byte> head, ParcelFields& parcel, MessageFields& first);

// Takes what is behind the first message's fields apart: calls take(fields, bytes) for each message until
// one gives false. False where the bytes are not so many messages; those before were taken.
bool unpack_parcel(
    const ParcelFields& parcel, const MessageFields& first, std::span<const std::byte> bytes,
    const std::function<bool(const MessageFields&, std::span<const std::byte>)>& take);

}  // namespace thinwire
