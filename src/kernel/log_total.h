// A sum of logarithms from products of mantissas: where the one real logarithm per lane and chunk
// is taken.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace thinwire::kernel {

inline constexpr size_t kLogLanes = 16;

// A chunk of at most kTailChunk numbers, all normal and above 0. Number i of it is in lane i %
// kLogLanes. A logarithm is the exponent plus the logarithm of the mantissa, and the logarithms of
// mantissas add up as their product: a lane's 512 mantissas below 2 stay below 2^512.
struct LogChunk {
  double products[kLogLanes];  // of mantissas, in order
  uint64_t exponents;          // their sum over all lanes, each with its bias of 1023
};

// The sum of chunks. The C library's logarithm is on the processor alone, so chunks that a device
// multiplied come here, too.
class LogTotal {
 public:
  // The next chunk.
  void add(const LogChunk& chunk) noexcept;

  // What log_sum of tail_moments.h returns for `count` values that came in chunks and the fewer
  // than kLogLanes `last` ones behind them.
  double sum(size_t count, std::span<const float> last, double guard, double unit) const noexcept;

 private:
  double mantissas_ = 0;    // logarithms
  uint64_t exponents_ = 0;  // whole numbers, so that no digit is lost
};

}  // namespace thinwire::kernel
