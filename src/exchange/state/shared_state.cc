// Compares state that all ranks hold alike, by one all-gather of checksums.
// SPDX-License-Identifier: Apache-2.0
#include "exchange/state/shared_state.h"

#include <span>

#include "core/checksum.h"
#include "core/odd_one_out.h"

namespace thinwire {
namespace {

// The sum of an array that is not shared here. Ranks must have as many sums as each other, or their
// messages differ in length.
constexpr uint64_t kNotShared = 0;

}  // namespace

void add_shared_sums(const std::string& key, const Stateful& object, std::vector<SharedSum>& sums) {
  if (!object.may_share_state()) return;
  const bool shares = object.shares_state();
  for (const StateArray& array : object.save()) {
    const std::string name = key + "/" + array.name;
    if (array.on_resize == OnResize::kShared)
      sums.push_back({.name = name, .sum = checksum(array.data)});
    else if (!shares)
      sums.push_back({.name = name, .sum = kNotShared});
  }
}

void require_shared_alike(Group& group, const std::vector<SharedSum>& sums, size_t first,
                          size_t stride) {
  if (sums.empty()) return;
  std::vector<uint64_t> mine;
  for (const SharedSum& one : sums) mine.push_back(one.sum);
  const size_t ranks = static_cast<size_t>(group.size());
  std::vector<uint64_t> all(ranks * sums.size());
  group.all_gather(std::as_bytes(std::span(mine)), std::as_writable_bytes(std::span(all)));
  for (size_t i = 0; i < sums.size(); ++i) {
    const auto of = [&](size_t rank) { return all[rank * sums.size() + i]; };
    const size_t odd = odd_one_out(ranks, [&](size_t a, size_t b) { return of(a) == of(b); });
    if (odd == ranks) continue;
    const auto name = [&](size_t rank) { return "rank " + std::to_string(first + rank * stride); };
    const std::string others = ranks == 2 ? name(1 - odd) : "most ranks";
    throw AgreedError(ErrorCode::kMismatch,
                      "exchange: '" + sums[i].name + "', which all ranks share, is not on " +
                          name(odd) + " what it is on " + others +
                          ": was its state not loaded, of another step, or damaged?");
  }
}

}  // namespace thinwire
