// For each mask of eight lanes, the order that moves the kept lanes to the front.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace thinwire::kernel {

using LaneOrder = std::array<uint8_t, 8>;

constexpr std::array<LaneOrder, 256> make_compact_orders() {
  std::array<LaneOrder, 256> orders{};
  for (size_t mask = 0; mask < orders.size(); ++mask) {
    size_t kept = 0;
    for (uint8_t lane = 0; lane < 8; ++lane)
      if ((mask >> lane & 1) != 0) orders[mask][kept++] = lane;
  }
  return orders;
}

// Lanes after the last kept one are 0. The first sixteen serve vectors of four lanes as well.
inline constexpr std::array<LaneOrder, 256> kCompactOrders = make_compact_orders();

}  // namespace thinwire::kernel
