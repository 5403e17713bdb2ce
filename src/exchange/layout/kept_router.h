// KeptRouter: sorts the kept values of a stream by the regions in which they are.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "exchange/layout/stripes.h"
#include "thinwire/codec.h"

namespace thinwire {

// What is kept of one region, in ascending order.
struct KeptPart {
  std::span<const uint32_t> offsets;    // in the region
  std::span<const uint32_t> positions;  // in the stream
  std::span<float> values;
};

// Buffers grow to what was needed once and are kept: 24 bytes per kept value. Good until the next
// route. One thread at a time.
class KeptRouter {
 public:
  // What `payload` keeps, which `decoder` shows. Fails as it does.
  Status route(const Stripes& stripes, const Decoder& decoder, std::span<const std::byte> payload);

  // All values there are.
  void route_all(const Stripes& stripes, std::span<const float> values);

  // Takes the smallest of a region away until `most` are left, of equal ones the last, and gives
  // them back to `rest`, as long as the stream or empty. Returns how many. REQUIRES: 0 < most.
  size_t withhold(size_t region, size_t most, std::span<float> rest);

  KeptPart part(size_t region) noexcept;

 private:
  void take(const Stripes& stripes, std::span<const uint32_t> positions,
            std::span<const float> values);
  void sort(size_t regions);

  struct Entry {
    Stripes::Place place;
    uint32_t position;
    float value;
  };
  std::vector<Entry> entries_;  // as they were shown
  std::vector<uint32_t> offsets_, positions_;
  std::vector<float> values_;  // region by region
  std::vector<size_t> begins_, ends_;
};

}  // namespace thinwire
