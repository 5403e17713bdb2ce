// Bytes in, bytes out; what arrives may be anything.
// SPDX-License-Identifier: Apache-2.0
#include "comm/c10d/parcel.h"

#include <algorithm>
#include <cstring>

namespace thinwire {
namespace {

void append(std::vector<std::byte>& to, std::span<const std::byte> bytes) {
  to.insert(to.end(), bytes.begin(), bytes.end());
}

template <typename T>
void append_fields(std::vector<std::byte>& to, const T& fields) {
  append(to, std::as_bytes(std::span(&fields, 1)));
}

}  // namespace

PackedParcel pack_parcel(std::span<const MessageView> messages) {
  ParcelFields fields{.messages = static_cast<uint32_t>(messages.size())};
  for (const MessageView& message : messages)
    fields.size += sizeof(MessageFields) + message.bytes.size();
  PackedParcel parcel;
  parcel.head.reserve(kHeadSize);
  append_fields(parcel.head, fields);
  append_fields(parcel.head, messages.front().fields);
  parcel.rest = messages.front().bytes;
  if (messages.size() > 1) {
    parcel.copy.reserve(fields.size);
    append(parcel.copy, messages.front().bytes);
    for (const MessageView& message : messages.subspan(1)) {
      append_fields(parcel.copy, message.fields);
      append(parcel.copy, message.bytes);
    }
    parcel.rest = parcel.copy;
  }
  const size_t in_head = std::min(parcel.rest.size(), kHeadSize - parcel.head.size());
  append(parcel.head, parcel.rest.first(in_head));
  parcel.rest = parcel.rest.subspan(in_head);
  parcel.head.resize(kHeadSize);
  return parcel;
}

bool read_head(std::span<const std::byte> head, ParcelFields& parcel, MessageFields& first) {
  std::memcpy(&parcel, head.data(), sizeof parcel);
  std::memcpy(&first, head.data() + sizeof parcel, sizeof first);
  if (parcel.magic != ParcelFields{}.magic || parcel.messages == 0 || parcel.size < sizeof first)
    return false;
  const uint64_t behind = parcel.size - sizeof first;
  return parcel.messages == 1 ? first.size == behind
                              : first.size <= behind && parcel.size <= kParcel;
}

bool unpack_parcel(
    const ParcelFields& parcel, const MessageFields& first, std::span<const std::byte> bytes,
    const std::function<bool(const MessageFields&, std::span<const std::byte>)>& take) {
  MessageFields fields = first;
  for (uint32_t i = 0; i < parcel.messages; ++i) {
    if (i > 0) {
      if (bytes.size() < sizeof fields) return false;
      std::memcpy(&fields, bytes.data(), sizeof fields);
      bytes = bytes.subspan(sizeof fields);
    }
    if (fields.size > bytes.size()) return false;
    if (!take(fields, bytes.first(fields.size))) return true;
    bytes = bytes.subspan(fields.size);
  }
  return bytes.empty();
}

}  // namespace thinwire
