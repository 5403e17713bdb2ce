// KeptRouter: sorts kept values by region, and gives back the smallest of a full region.
// SPDX-License-Identifier: Apache-2.0
#include "exchange/layout/kept_router.h"

#include <algorithm>
#include <array>
#include <bit>
#include <functional>
#include <numeric>

#include "kernel/kth_magnitude.h"

namespace thinwire {

Status KeptRouter::route(const Stripes& stripes, const Decoder& decoder,
                         std::span<const std::byte> payload) {
  entries_.clear();
  const auto visit = [&](std::span<const uint32_t> positions, std::span<const float> values) {
    take(stripes, positions, values);
  };
  Status status = decoder.visit(payload, std::cref(visit));  // a reference needs no allocation
  if (status) sort(stripes.regions());
  return status;
}

void KeptRouter::route_all(const Stripes& stripes, std::span<const float> values) {
  constexpr size_t kBlock = 512;
  std::array<uint32_t, kBlock> positions;
  entries_.clear();
  for (size_t begin = 0; begin < values.size(); begin += kBlock) {
    const auto some = values.subspan(begin, std::min(kBlock, values.size() - begin));
    const auto at = std::span(positions).first(some.size());
    std::iota(at.begin(), at.end(), static_cast<uint32_t>(begin));
    take(stripes, at, some);
  }
  sort(stripes.regions());
}

void KeptRouter::take(const Stripes& stripes, std::span<const uint32_t> positions,
                      std::span<const float> values) {
  for (size_t i = 0; i < positions.size(); ++i)
    entries_.push_back(
        {.place = stripes.place(positions[i]), .position = positions[i], .value = values[i]});
}

void KeptRouter::sort(size_t regions) {
  ends_.assign(regions, 0);
  for (const Entry& entry : entries_) ++ends_[entry.place.region];
  begins_.resize(regions);
  std::exclusive_scan(ends_.begin(), ends_.end(), begins_.begin(), size_t{0});
  ends_ = begins_;
  if (values_.size() < entries_.size()) {
    offsets_.resize(entries_.size());
    positions_.resize(entries_.size());
    values_.resize(entries_.size());
  }
  for (const Entry& entry : entries_) {
    const size_t to = ends_[entry.place.region]++;
    offsets_[to] = entry.place.offset;
    positions_[to] = entry.position;
    values_[to] = entry.value;
  }
}

size_t KeptRouter::withhold(size_t region, size_t most, std::span<float> rest) {
  const KeptPart all = part(region);
  if (all.values.size() <= most) return 0;
  const auto bits = [](float value) { return std::bit_cast<uint32_t>(value) & 0x7fffffff; };
  const auto [magnitude, above] = kernel::kth_magnitude(all.values, most);
  size_t ties = most - above;
  size_t to = begins_[region];
  for (size_t i = 0; i < all.values.size(); ++i) {
    const bool tie = bits(all.values[i]) == bits(magnitude) && ties > 0;
    if (bits(all.values[i]) > bits(magnitude) || tie) {
      ties -= tie;
      offsets_[to] = all.offsets[i];
      positions_[to] = all.positions[i];
      values_[to++] = all.values[i];
    } else if (!rest.empty()) {
      rest[all.positions[i]] += all.values[i];
    }
  }
  ends_[region] = to;
  return all.values.size() - most;
}

KeptPart KeptRouter::part(size_t region) noexcept {
  const size_t begin = begins_[region], count = ends_[region] - begin;
  return {.offsets = std::span(offsets_).subspan(begin, count),
          .positions = std::span(positions_).subspan(begin, count),
          .values = std::span(values_).subspan(begin, count)};
}

}  // namespace thinwire
