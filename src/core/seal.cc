// Checksums of saved arrays, stored as one more array, so that every file format carries them.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>
#include <vector>

#include "core/bytes.h"
#include "core/checksum.h"
#include "thinwire/state.h"

namespace thinwire {
namespace {

// Two slashes: what takes names of stored arrays apart finds a stream and a part in it.
constexpr const char* kName = "thinwire/seal/xxh3";

int64_t sum_of(const StateArray& array) {
  const uint64_t kind[] = {static_cast<uint64_t>(array.type),
                           static_cast<uint64_t>(array.on_resize)};
  uint64_t sum = checksum(std::as_bytes(std::span(kind)), std::as_bytes(std::span(array.name)));
  sum = checksum(byte_view(sum), std::as_bytes(std::span(array.shape)));
  return static_cast<int64_t>(checksum(byte_view(sum), array.data));
}

// By name, since formats bring arrays into an order of their own.
std::vector<const StateArray*> in_order(const StateArrays& arrays) {
  std::vector<const StateArray*> ordered;
  for (const StateArray& array : arrays)
    if (!is_seal(array)) ordered.push_back(&array);
  std::stable_sort(ordered.begin(), ordered.end(),
                   [](const StateArray* a, const StateArray* b) { return a->name < b->name; });
  return ordered;
}

Status damaged(const std::string& what) {
  return Status::fail(ErrorCode::kCorrupt, "the saved state is damaged: " + what);
}

}  // namespace

bool is_seal(const StateArray& array) noexcept { return array.name == kName; }

void seal_state(StateArrays& arrays) {
  std::vector<int64_t> sums;
  for (const StateArray* array : in_order(arrays)) sums.push_back(sum_of(*array));
  if (!sums.empty())
    arrays.push_back(make_state(kName, std::span<const int64_t>(sums), OnResize::kCopy));
}

Status check_seal(const StateArrays& arrays) {
  const auto seal = std::find_if(arrays.begin(), arrays.end(), is_seal);
  if (seal == arrays.end()) return Status::ok();
  const auto ordered = in_order(arrays);
  std::vector<int64_t> sums(ordered.size());
  if (!copy_state(arrays, kName, std::span(sums)))
    return damaged("it has " + std::to_string(sums.size()) + " arrays, but was saved with " +
                   std::to_string(seal->data.size() / sizeof(int64_t)));
  for (size_t i = 0; i < sums.size(); ++i)
    if (sum_of(*ordered[i]) != sums[i])
      return damaged("array '" + ordered[i]->name + "' is not what was saved");
  return Status::ok();
}

}  // namespace thinwire
