// Packs named arrays into one message: for each its name, type, kind and shape, then its bytes; and
// a seal.
// SPDX-License-Identifier: Apache-2.0
#include "exchange/members/state_messages.h"

#include <cstdint>
#include <cstring>
#include <string>
#include <utility>

#include "core/bytes.h"

namespace thinwire {
namespace {

void append(std::vector<std::byte>& to, const void* from, size_t size) {
  const auto* const bytes = static_cast<const std::byte*>(from);
  to.insert(to.end(), bytes, bytes + size);
}

void append_number(std::vector<std::byte>& to, uint64_t number) {
  append(to, &number, sizeof number);
}

Status corrupt() {
  return Status::fail(ErrorCode::kCorrupt, "exchange: the state of another rank arrived corrupt");
}

}  // namespace

std::vector<std::byte> pack_state(const StateArrays& arrays) {
  StateArrays sealed = arrays;
  seal_state(sealed);
  std::vector<std::byte> bytes;
  append_number(bytes, sealed.size());
  for (const StateArray& array : sealed) {
    append_number(bytes, array.name.size());
    append(bytes, array.name.data(), array.name.size());
    append_number(bytes, static_cast<uint64_t>(array.type));
    append_number(bytes, static_cast<uint64_t>(array.on_resize));
    append_number(bytes, array.shape.size());
    for (const uint64_t extent : array.shape) append_number(bytes, extent);
    append_number(bytes, array.data.size());
    append(bytes, array.data.data(), array.data.size());
  }
  return bytes;
}

Result<StateArrays> unpack_state(std::span<const std::byte> bytes) {
  ByteReader reader(bytes);
  StateArrays arrays;
  const auto number = [&] { return reader.get<uint64_t>(); };
  const auto count = number();
  for (uint64_t i = 0; reader.ok() && i < count; ++i) {
    StateArray& array = arrays.emplace_back();
    const auto name = reader.take(number());
    array.name.assign(reinterpret_cast<const char*>(name.data()), name.size());
    const uint64_t type = number(), on_resize = number(), extents = number();
    if (type > static_cast<uint64_t>(StateType::kUint8) ||
        on_resize > static_cast<uint64_t>(OnResize::kShared))
      return corrupt();
    array.type = static_cast<StateType>(type);
    array.on_resize = static_cast<OnResize>(on_resize);
    for (uint64_t e = 0; reader.ok() && e < extents; ++e) array.shape.push_back(number());
    const auto data = reader.take(number());
    array.data.assign(data.begin(), data.end());
  }
  if (!reader.ok() || !check_seal(arrays)) return corrupt();
  std::erase_if(arrays, is_seal);
  return arrays;
}

void check_state_size(uint64_t size, uint64_t limit, int rank) {
  if (size > limit)
    throw Error(ErrorCode::kCorrupt, "exchange: rank " + std::to_string(rank) + " announces " +
                                         std::to_string(size) + " bytes of state where at most " +
                                         std::to_string(limit) + " are possible");
}

std::vector<std::byte> broadcast_state(Group& group, const StateArrays& mine, int from,
                                       uint64_t limit) {
  std::vector<std::byte> bytes;
  if (group.rank() == from) bytes = pack_state(mine);
  uint64_t size = bytes.size();
  group.broadcast(writable_byte_view(size), from);
  check_state_size(size, limit, from);
  bytes.resize(size);
  group.broadcast(bytes, from);
  return bytes;
}

}  // namespace thinwire
