// The payload of every sparsifier: the positions of kept values, and the values.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "codec/kept_values.h"
#include "kernel/position_code.h"
#include "thinwire/status.h"
#include "thinwire/stream.h"

namespace thinwire {

//   u32 kept
//   u8  format        of the values
//   u8  zero[3]
//       values[kept]  as in codec/kept_values.h, in ascending order of position
//       positions     as in kernel/position_code.h; nothing if kept is 0
//
// At a density of 0.01 a kept value takes 40.1 bits, in 16 bits 24.1, as int8 16.2, as a sign 9.1;
// four-byte positions would make that 64, 48, 40 and 33.

// Throws Error(kUnsupported), naming `codec`, for a stream whose positions need more than 32 bits.
void require_sparse_stream(std::string_view codec, const StreamSpec& stream);

// Upper bound on the bytes of at most `max_kept` of `count` values. REQUIRES: max_kept <= count.
size_t max_sparse_size(size_t count, size_t max_kept, ValueFormat format) noexcept;

// Writes values[i] at positions[i] and returns the bytes. A non-empty `left` receives values -
// decoded: zeros for fp32; it may be `values`.
// REQUIRES: positions strictly ascending, finite values, `out` as large as max_sparse_size says.
size_t write_sparse(std::span<const uint32_t> positions, std::span<const float> values,
                    ValueFormat format, std::span<std::byte> out, std::span<float> left = {});

// The same for values that still lie in their vector: values[positions[i]]. A non-empty `rest`, as
// long as `values` and perhaps the same, receives values - decoded at the positions; others are not
// touched.
size_t write_sparse_at(std::span<const uint32_t> positions, std::span<const float> values,
                       ValueFormat format, std::span<std::byte> out, std::span<float> rest = {});

// out[position] += weight * value for all that the payload names. Takes any bytes; on failure `out`
// is unspecified. A format other than the agreed one is corrupt.
Status add_sparse(std::span<const std::byte> payload, ValueFormat format, float weight,
                  std::span<float> out);

// Shows all that the payload names, of `count` values, 512 at a time. Takes any bytes; on failure
// some may have been shown.
Status visit_sparse(std::span<const std::byte> payload, ValueFormat format, size_t count,
                    const KeptVisitor& visitor);

// What a payload holds, for who adds it elsewhere.
struct SparseParts {
  size_t kept = 0;
  std::span<const std::byte> values;          // of the payload
  std::span<const std::byte> positions;       // of the payload, right behind the values
  std::vector<kernel::PositionPlace> places;  // of the blocks of positions
};

// Takes any bytes, and fails where add_sparse fails for a vector of `count`, in the same way.
Result<SparseParts> check_sparse(std::span<const std::byte> payload, ValueFormat format,
                                 size_t count);

}  // namespace thinwire
