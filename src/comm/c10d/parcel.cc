// Writes and reads parcels; anything that arrives is checked first.
// SPDX-License-Identifier: Apache-2.0
#include "comm/c10d/parcel.h"

#include <algorithm>
#include <cstring>

namespace thinwire {

bool ParcelWriter::begin(const MessageFields& fields) noexcept {
  if (memory_.size() - written_ < sizeof fields) return false;
  std::memcpy(memory_.data() + written_, &fields, sizeof fields);
  written_ += sizeof fields;
  return true;
}

size_t ParcelWriter::add(std::span<const std::byte> bytes) noexcept {
  const size_t fitting = std::min(bytes.size(), memory_.size() - written_);
  if (fitting > 0) std::memcpy(memory_.data() + written_, bytes.data(), fitting);
  written_ += fitting;
  return fitting;
}

std::span<const std::byte> ParcelWriter::finish() noexcept {
  const ParcelFields fields{.size = static_cast<uint32_t>(written_ - sizeof(ParcelFields))};
  std::memcpy(memory_.data(), &fields, sizeof fields);
  return memory_.first(written_);
}

bool ParcelReader::read(std::span<const std::byte> parcel,
                        const std::function<bool(const Part&)>& take) {
  ParcelFields head;
  if (parcel.size() < sizeof head) return false;
  std::memcpy(&head, parcel.data(), sizeof head);
  parcel = parcel.subspan(sizeof head);
  if (head.magic != ParcelFields{}.magic || head.size == 0 || head.size > parcel.size())
    return false;
  parcel = parcel.first(head.size);
  while (!parcel.empty()) {
    if (left_ == 0) {
      if (parcel.size() < sizeof fields_) return false;
      std::memcpy(&fields_, parcel.data(), sizeof fields_);
      parcel = parcel.subspan(sizeof fields_);
      left_ = fields_.size;
    }
    const auto bytes = parcel.first(std::min<uint64_t>(left_, parcel.size()));
    parcel = parcel.subspan(bytes.size());
    left_ -= bytes.size();
    if (!take({.fields = fields_, .bytes = bytes, .last = left_ == 0})) return true;
  }
  return true;
}

}  // namespace thinwire
