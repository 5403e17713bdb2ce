// The payload of every sparsifier: where the kept values are, and what they are.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "thinwire/options.h"
#include "thinwire/status.h"
#include "thinwire/stream.h"

namespace thinwire {

//   u32 kept
//   u8  format        of the values
//   u8  zero[3]
//       values[kept]  f32, f16 or bf16, in ascending order of position, all finite
//       positions     as in kernel/position_code.h; nothing if kept is 0
//
// At a density of 0.01 a kept value takes 40.1 bits, or 24.1 in 16 bits; four-byte positions would
// make that 64 and 48.
enum class ValueFormat : uint8_t { kFp32 = 0, kFp16 = 1, kBf16 = 2 };

// The option `values=fp32|fp16|bf16` that sparsifiers share, and its value.
OptionInfo value_format_option();
ValueFormat value_format(const Options& options);

// Throws Error(kUnsupported), naming `codec`, for a stream whose positions need more than 32 bits.
void require_sparse_stream(std::string_view codec, const StreamSpec& stream);

// Upper bound on the bytes of at most `max_kept` of `count` values. REQUIRES: max_kept <= count.
size_t max_sparse_size(size_t count, size_t max_kept, ValueFormat format) noexcept;

// Writes values[i] at positions[i] and returns the bytes. Values beyond the largest of a 16-bit
// format are sent as that one. A non-empty `left` receives values - decoded: zeros for fp32; it may
// be `values`.
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

}  // namespace thinwire
