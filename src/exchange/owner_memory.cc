// Adds, swaps, and finds its way in pieces that other ranks have saved.
// SPDX-License-Identifier: Apache-2.0
#include "exchange/owner_memory.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "kernel/vector_moments.h"

namespace thinwire {
namespace {

constexpr const char* kPieces = "pieces";  // begin, count and the stream's count, for each piece
constexpr size_t kPerPiece = 3;
constexpr const char* kResidual = "residual";  // of the pieces, one after another

// Copies what lies in both: `from` holds the values of `piece`, `to` those of `shard`.
void copy_overlap(Range piece, std::span<const float> from, Range shard, std::span<float> to) {
  const size_t begin = std::max(piece.begin, shard.begin);
  const size_t end = std::min(piece.begin + piece.count, shard.begin + shard.count);
  if (begin >= end) return;
  const auto values = from.subspan(begin - piece.begin, end - begin);
  std::copy(values.begin(), values.end(), to.subspan(begin - shard.begin).begin());
}

Status mismatch(const char* what) {
  return Status::fail(ErrorCode::kMismatch, std::string("owner's residual: ") + what);
}

const StateArray* find(const StateArrays& arrays, std::string_view name) {
  const auto found = std::find_if(arrays.begin(), arrays.end(),
                                  [&](const StateArray& array) { return array.name == name; });
  return found == arrays.end() ? nullptr : &*found;
}

}  // namespace

OwnerMemory::OwnerMemory(size_t stream_count, Range shard)
    : stream_count_(stream_count), shard_(shard), committed_(shard.count), next_(shard.count) {}

void OwnerMemory::move_to(Range shard) {
  if (shard.begin == shard_.begin && shard.count == shard_.count) return;
  OwnerMemory moved(stream_count_, shard);
  copy_overlap(shard_, committed_, shard, moved.committed_);
  *this = std::move(moved);
}

OwnerMemory::Sum OwnerMemory::add(size_t begin, std::span<const float> mean) noexcept {
  const size_t at = begin - shard_.begin;
  const auto sum = std::span(next_).subspan(at, mean.size());
  const Moments moments =
      kernel::add_with_moments(mean, std::span(committed_).subspan(at, mean.size()), sum);
  return {.values = sum, .moments = moments};
}

StateArrays OwnerMemory::save() const {
  const int64_t piece[kPerPiece] = {static_cast<int64_t>(shard_.begin),
                                    static_cast<int64_t>(shard_.count),
                                    static_cast<int64_t>(stream_count_)};
  return {make_state(kPieces, std::span<const int64_t>(piece), OnResize::kJoin),
          make_state(kResidual, std::span<const float>(committed_), OnResize::kJoin)};
}

Status OwnerMemory::load(const StateArrays& arrays) {
  const StateArray* const listed = find(arrays, kPieces);
  const StateArray* const kept = find(arrays, kResidual);
  if (listed == nullptr || kept == nullptr) return mismatch("an array is missing");
  std::vector<int64_t> pieces(listed->data.size() / sizeof(int64_t));
  std::vector<float> values(kept->data.size() / sizeof(float));
  if (Status status = copy_state(arrays, kPieces, std::span(pieces)); !status) return status;
  if (Status status = copy_state(arrays, kResidual, std::span(values)); !status) return status;
  if (pieces.size() % kPerPiece != 0) return mismatch("a piece is cut short");

  std::span<const float> rest = values;
  std::fill(next_.begin(), next_.end(), 0.0f);
  for (size_t i = 0; i < pieces.size(); i += kPerPiece) {
    const auto begin = static_cast<uint64_t>(pieces[i]);
    const auto count = static_cast<uint64_t>(pieces[i + 1]);
    if (static_cast<uint64_t>(pieces[i + 2]) != stream_count_)
      return mismatch("its stream has another length");
    if (begin > stream_count_ || count > stream_count_ - begin)
      return mismatch("a piece lies outside its stream");
    if (count > rest.size()) return mismatch("pieces and values do not match");
    copy_overlap({begin, count}, rest.first(count), shard_, next_);
    rest = rest.subspan(count);
  }
  if (!rest.empty()) return mismatch("pieces and values do not match");
  committed_.swap(next_);
  return Status::ok();
}

}  // namespace thinwire
