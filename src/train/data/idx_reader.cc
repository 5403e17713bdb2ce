// IDX [LeCun, Cortes, Burges]: all integers big-endian.
//
//   u8  0, 0
//   u8  type of the values: 8 = unsigned byte
//   u8  number of dimensions
//   u32 extent, for each dimension
//   u8  values[product of extents]
//
// SPDX-License-Identifier: Apache-2.0
#include "train/data/idx_reader.h"

#include <span>

#include "thinwire/status.h"
#include "train/data/compressed_file.h"

namespace thinwire {
namespace {

uint32_t big_endian(std::span<const std::byte, 4> bytes) {
  uint32_t value = 0;
  for (const std::byte byte : bytes) value = value << 8 | std::to_integer<uint32_t>(byte);
  return value;
}

}  // namespace

IdxArray read_idx(const std::string& path, size_t dimensions) {
  IdxArray array;
  array.values = read_file(path);
  const size_t header = 4 + 4 * dimensions;
  const std::span<const std::byte> bytes = array.values;
  const auto fail = [&](const std::string& fault) {
    return Error(ErrorCode::kCorrupt, path + ": " + fault);
  };
  if (bytes.size() < header) throw fail("too short for an IDX header");
  const uint32_t magic = big_endian(bytes.first<4>());
  if (magic != 0x0800 + dimensions)
    throw fail("not an IDX file of bytes with " + std::to_string(dimensions) + " dimensions");

  uint64_t count = 1;
  for (size_t i = 0; i < dimensions; ++i) {
    const uint64_t extent = big_endian(bytes.subspan(4 + 4 * i).first<4>());
    if (extent == 0 || extent > kMaxContent / count) throw fail("extents are zero or too large");
    count *= extent;
    array.shape.push_back(extent);
  }
  if (bytes.size() - header != count)
    throw fail("holds " + std::to_string(bytes.size() - header) + " values where its header says " +
               std::to_string(count));
  array.values.erase(array.values.begin(), array.values.begin() + static_cast<ptrdiff_t>(header));
  return array;
}

}  // namespace thinwire
