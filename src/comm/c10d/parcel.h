// Parcels: the messages to a rank as one stream of bytes, cut for a process group.
//
// A parcel is what one transfer of the backend carries: its fields (magic, size of what follows)
// and at most kParcel - sizeof(ParcelFields) bytes of the stream, in which each message has its
// fields (context, size, tag, kind) and its bytes behind them. A message may end in a later parcel
// than it began; fields are never cut.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

namespace thinwire {

struct MessageFields {
  uint64_t context = 0;
  uint64_t size = 0;  // bytes
  int32_t tag = 0;
  uint32_t kind = 0;
};

struct ParcelFields {
  uint32_t magic = 0x6432'7774;  // "tw2d"
  uint32_t size = 0;             // bytes that follow
};

inline constexpr size_t kParcel = size_t{1} << 19;

// Fills memory of kParcel bytes.
class ParcelWriter {
 public:
  ParcelWriter() = default;  // full
  explicit ParcelWriter(std::span<std::byte> memory)
      : memory_(memory), written_(sizeof(ParcelFields)) {}

  bool empty() const noexcept { return written_ <= sizeof(ParcelFields); }

  // Begins a message. False, with nothing written, where fields do not fit.
  bool begin(const MessageFields& fields) noexcept;

  // Adds as many of a message's bytes as fit; returns how many.
  size_t add(std::span<const std::byte> bytes) noexcept;

  // The parcel, as it is sent.
  std::span<const std::byte> finish() noexcept;

 private:
  std::span<std::byte> memory_;
  size_t written_ = 0;
};

// Takes parcels apart, in the order in which they were filled.
class ParcelReader {
 public:
  struct Part {
    MessageFields fields;              // the whole message's
    std::span<const std::byte> bytes;  // of it, in this parcel
    bool last = false;                 // the message ends here
  };

  // Calls take for each part of a message until one gives false, after which no parcel is to be
  // read. False for what is no parcel: the parts before were taken. There may be bytes behind a
  // parcel.
  bool read(std::span<const std::byte> parcel, const std::function<bool(const Part&)>& take);

 private:
  MessageFields fields_;
  uint64_t left_ = 0;  // bytes of a message that began in an earlier parcel
};

}  // namespace thinwire
