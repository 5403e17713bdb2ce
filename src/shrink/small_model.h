// SmallModel: the arrays of a network, some of them divided into clusters, and their form in a
// file.
//
// A file stands alone, or follows another one: then it codes cluster numbers as changes since that
// one. All numbers are little endian. docs/wire-format.md has the rules by which a reader refuses a
// file.
//
//   u32  magic "TWSM"
//   u16  version, 1
//   u16  0
//   u64  XXH3 at the end of the file that it follows; 0 where it stands alone
//   u32  number of arrays; for each:
//     u16  size of the name; the name, in UTF-8, not "__metadata__"
//     u8   StateType, u8 OnResize, u8 form, u8 number of dimensions, at most 64
//     u64  extent of each dimension, at most 2^63 - 1
//     form 0, exact:    the values
//     form 1, half:     the upper 16 bits of each float32
//     form 2, clusters; form 3, changes since the clusters of the same name in the file that it
//     follows:
//       u16  centres, 2 to 256, a power of two; f32 each
//       u64  kept values; f32 each
//       u64  size of the coded numbers; the coded numbers (cluster_code.h)
//   u64  XXH3 of all bytes before
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "shrink/clusters.h"
#include "thinwire/state.h"
#include "thinwire/status.h"

namespace thinwire {

struct SmallArray {
  StateArray exact;  // without data where there are clusters
  std::optional<Clusters> clusters = {};
  bool half = false;  // float32 whose lower 16 bits are zero
};

using SmallModel = std::vector<SmallArray>;

// The array with float32 values rounded to 16 bits (bfloat16, to the nearest, ties to even); of
// other types, itself.
SmallArray make_half(StateArray array);

// The values of all arrays. Fails where clusters contradict themselves. Given a model that is
// moved, it frees the numbers of each array when its values are there.
Result<StateArrays> expand(SmallModel model);

// The bytes of a file that follows that of `before`, whose sum is `before_sum`; or null and 0. An
// array is coded as changes where that is smaller; if none is, the file stands alone.
struct SmallFile {
  std::vector<std::byte> bytes;
  bool alone = true;
};
SmallFile write_small_model(const SmallModel& model, const SmallModel* before = nullptr,
                            uint64_t before_sum = 0);

// The XXH3 at the end of a file.
uint64_t sum_of_small_model(std::span<const std::byte> bytes) noexcept;

// Whether bytes that may be anything begin like a file, and like one that stands alone.
bool is_small_model(std::span<const std::byte> bytes) noexcept;
bool stands_alone(std::span<const std::byte> bytes) noexcept;

// Reads bytes that may be anything. Fails, starting with `origin`: kBadLength or kCorrupt where
// they are no such file, kUnsupported for another version, kMismatch where it does not follow
// `before`. It asks for 9 KB of memory for each byte at most: values that are all as expected cost
// that little.
Result<SmallModel> read_small_model(const std::string& origin, std::span<const std::byte> bytes,
                                    const SmallModel* before = nullptr, uint64_t before_sum = 0);

}  // namespace thinwire
