// SyncMemory: saves and loads counters, numbers and vectors, all of them or none.
// SPDX-License-Identifier: Apache-2.0
#include "sync/sync_memory.h"

#include <algorithm>
#include <array>

#include "core/bytes.h"
#include "core/check.h"
#include "core/checksum.h"

namespace thinwire {
namespace {

constexpr const char* kCounters = "counters";

template <typename Parts>
auto& find(Parts& parts, std::string_view name) {
  const auto found =
      std::find_if(parts.begin(), parts.end(), [&](const auto& part) { return part.name == name; });
  THINWIRE_CHECK(found != parts.end(), "synchroniser: no memory '" + std::string(name) + "'");
  return found->values;
}

}  // namespace

AlignedVector<float>& SyncMemory::vector(std::string_view name) { return find(vectors_, name); }
std::vector<double>& SyncMemory::numbers(std::string_view name) { return find(numbers_, name); }

bool SyncMemory::is_shaped_as(const SyncMemory& other) const noexcept {
  const auto alike = [](const auto& a, const auto& b) {
    return a.name == b.name && a.values.size() == b.values.size();
  };
  return std::ranges::equal(vectors_, other.vectors_, alike) &&
         std::ranges::equal(numbers_, other.numbers_, alike);
}

uint64_t SyncMemory::checksum() const {
  uint64_t sum = 0;
  for (const Vector& one : vectors_)
    sum = thinwire::checksum(byte_view(sum), std::as_bytes(std::span(one.values)));
  return sum;
}

StateArrays SyncMemory::save() const {
  const std::array counters = {static_cast<int64_t>(steps), static_cast<int64_t>(rounds)};
  StateArrays arrays;
  arrays.push_back(make_state(kCounters, counters, OnResize::kCopy));
  for (const Vector& one : vectors_)
    arrays.push_back(
        make_state(one.name, std::span<const float>(one.values), OnResize::kOwedToMean));
  for (const Numbers& some : numbers_)
    arrays.push_back(make_state(some.name, std::span<const double>(some.values), some.on_resize));
  return arrays;
}

Status SyncMemory::load(const StateArrays& arrays) {
  std::array<int64_t, 2> counters{};
  std::vector<Vector> vectors = vectors_;
  std::vector<Numbers> numbers = numbers_;
  if (Status status = copy_state(arrays, kCounters, counters); !status) return status;
  if (counters[0] < 0 || counters[1] < 0)
    return Status::fail(ErrorCode::kMismatch, "synchroniser: a saved counter is negative");
  for (Vector& one : vectors)
    if (Status status = copy_state(arrays, one.name, std::span<float>(one.values)); !status)
      return status;
  for (Numbers& some : numbers)
    if (Status status = copy_state(arrays, some.name, std::span<double>(some.values)); !status)
      return status;
  steps = static_cast<uint64_t>(counters[0]);
  rounds = static_cast<uint64_t>(counters[1]);
  // In place: rules hold on to where values are.
  for (size_t i = 0; i < vectors_.size(); ++i)
    std::copy(vectors[i].values.begin(), vectors[i].values.end(), vectors_[i].values.begin());
  for (size_t i = 0; i < numbers_.size(); ++i)
    std::copy(numbers[i].values.begin(), numbers[i].values.end(), numbers_[i].values.begin());
  loaded_ = true;
  return Status::ok();
}

}  // namespace thinwire
