// OwnerMemory: residuals of means: commit, rollback, and loading pieces of other ranks.
// SPDX-License-Identifier: Apache-2.0
#include "exchange/state/owner_memory.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "kernel/vector_moments.h"

namespace thinwire {
namespace {

constexpr const char* kPieces = "pieces";  // begin, count and the stream's count, for each piece
constexpr size_t kPerPiece = 3;
constexpr const char* kRanks = "ranks";        // how many there were
constexpr const char* kResidual = "residual";  // of the pieces, one after another

size_t total(const std::vector<Range>& ranges) {
  size_t count = 0;
  for (const Range& range : ranges) count += range.count;
  return count;
}

bool same(const std::vector<Range>& a, const std::vector<Range>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const Range& x, const Range& y) {
    return x.begin == y.begin && x.count == y.count;
  });
}

Status mismatch(const char* what) {
  return Status::fail(ErrorCode::kMismatch, std::string("owner's residual: ") + what);
}

}  // namespace

OwnerMemory::OwnerMemory(size_t stream_count, std::vector<Range> shard, size_t ranks)
    : stream_count_(stream_count),
      shard_(std::move(shard)),
      ranks_(ranks),
      committed_(total(shard_)),
      next_(committed_.size()) {
  size_t at = 0;
  for (const Range& range : shard_) {
    starts_.push_back(at);
    at += range.count;
  }
}

// The first range that does not end before `begin`.
size_t OwnerMemory::range_from(size_t begin) const noexcept {
  const auto ends_before = [](const Range& range, size_t at) {
    return range.begin + range.count <= at;
  };
  return static_cast<size_t>(std::lower_bound(shard_.begin(), shard_.end(), begin, ends_before) -
                             shard_.begin());
}

// Adds what lies in both: `from` holds the values of `piece`, `to` those of the shard.
void OwnerMemory::take(Range piece, std::span<const float> from, std::span<float> to) const {
  const size_t piece_end = piece.begin + piece.count;
  for (size_t i = range_from(piece.begin); i < shard_.size() && shard_[i].begin < piece_end; ++i) {
    const size_t begin = std::max(piece.begin, shard_[i].begin);
    const size_t end = std::min(piece_end, shard_[i].begin + shard_[i].count);
    if (begin >= end) continue;
    const auto values = from.subspan(begin - piece.begin, end - begin);
    float* const at = to.subspan(starts_[i] + (begin - shard_[i].begin)).data();
    for (size_t j = 0; j < values.size(); ++j) at[j] += values[j];
  }
}

// Keeps what of `piece` lies in no range of the shard.
void OwnerMemory::add_strays(Range piece, std::span<const float> from) {
  size_t begin = piece.begin;
  const size_t end = piece.begin + piece.count;
  const auto keep = [&](size_t until) {
    if (begin >= until) return;
    const auto values = from.subspan(begin - piece.begin, until - begin);
    strays_.push_back({begin, values.size()});
    stray_values_.insert(stray_values_.end(), values.begin(), values.end());
  };
  for (size_t i = range_from(begin); i < shard_.size() && shard_[i].begin < end; ++i) {
    keep(shard_[i].begin);
    begin = std::max(begin, shard_[i].begin + shard_[i].count);
  }
  keep(end);
}

void OwnerMemory::move_to(std::vector<Range> shard) {
  if (same(shard, shard_)) return;
  OwnerMemory moved(stream_count_, std::move(shard), ranks_);
  const auto give = [&](Range piece, std::span<const float> values) {
    moved.take(piece, values, moved.committed_);
    moved.add_strays(piece, values);
  };
  for (size_t i = 0; i < shard_.size(); ++i)
    give(shard_[i], std::span(committed_).subspan(starts_[i], shard_[i].count));
  std::span<const float> rest = stray_values_;
  for (const Range& piece : strays_) {
    give(piece, rest.first(piece.count));
    rest = rest.subspan(piece.count);
  }
  *this = std::move(moved);
}

void OwnerMemory::release_strays(std::span<float> gradient) noexcept {
  const auto weight = static_cast<float>(ranks_);
  std::span<const float> rest = stray_values_;
  for (const Range& piece : strays_) {
    for (size_t i = 0; i < piece.count; ++i) gradient[piece.begin + i] += weight * rest[i];
    rest = rest.subspan(piece.count);
  }
  released_ = true;
}

void OwnerMemory::hand_strays_to(Feedback& memory) {
  if (!has_strays()) return;
  std::vector<float> debt(stream_count_);
  release_strays(debt);
  released_ = false;
  if (!memory.owe(debt)) return;
  strays_.clear();
  stray_values_.clear();
}

void OwnerMemory::commit() noexcept {
  committed_.swap(next_);
  if (!std::exchange(released_, false)) return;
  strays_.clear();
  stray_values_.clear();
}

OwnerMemory::Sum OwnerMemory::add(size_t begin, std::span<const float> mean) noexcept {
  const size_t i = range_from(begin);
  return i < shard_.size() ? add_at(starts_[i] + (begin - shard_[i].begin), mean) : Sum{};
}

OwnerMemory::Sum OwnerMemory::add_at(size_t at, std::span<const float> mean) noexcept {
  const auto sum = std::span(next_).subspan(at, mean.size());
  const Moments moments =
      kernel::add_with_moments(mean, std::span(committed_).subspan(at, mean.size()), sum);
  return {.values = sum, .moments = moments};
}

StateArrays OwnerMemory::save() const {
  std::vector<int64_t> pieces;
  for (const auto& ranges : {std::span<const Range>(shard_), std::span<const Range>(strays_)})
    for (const Range& range : ranges)
      for (const size_t number : {range.begin, range.count, stream_count_})
        pieces.push_back(static_cast<int64_t>(number));
  std::vector<float> values(committed_.begin(), committed_.end());
  values.insert(values.end(), stray_values_.begin(), stray_values_.end());
  const int64_t ranks[] = {static_cast<int64_t>(ranks_)};
  return {make_state(kPieces, std::span<const int64_t>(pieces), OnResize::kJoin),
          make_state(kResidual, std::span<const float>(values), OnResize::kJoin),
          make_state(kRanks, std::span<const int64_t>(ranks), OnResize::kCopy)};
}

Status OwnerMemory::load(const StateArrays& arrays) {
  const StateArray* const listed = find_state(arrays, kPieces);
  const StateArray* const kept = find_state(arrays, kResidual);
  if (listed == nullptr || kept == nullptr) return mismatch("an array is missing");
  std::vector<int64_t> pieces(listed->data.size() / sizeof(int64_t));
  std::vector<float> values(kept->data.size() / sizeof(float));
  int64_t ranks[1] = {};
  if (Status status = copy_state(arrays, kPieces, std::span(pieces)); !status) return status;
  if (Status status = copy_state(arrays, kResidual, std::span(values)); !status) return status;
  if (pieces.size() % kPerPiece != 0) return mismatch("a piece is cut short");

  // Of its own pieces a rank keeps all, of those of all old ranks what lies in its shard.
  const bool own = copy_state(arrays, kRanks, std::span(ranks)).is_ok() &&
                   ranks[0] == static_cast<int64_t>(ranks_);
  OwnerMemory loaded(stream_count_, shard_, ranks_);
  std::span<const float> rest = values;
  for (size_t i = 0; i < pieces.size(); i += kPerPiece) {
    const auto begin = static_cast<uint64_t>(pieces[i]);
    const auto count = static_cast<uint64_t>(pieces[i + 1]);
    if (static_cast<uint64_t>(pieces[i + 2]) != stream_count_)
      return mismatch("its stream has another length");
    if (begin > stream_count_ || count > stream_count_ - begin)
      return mismatch("a piece lies outside its stream");
    if (count > rest.size()) return mismatch("pieces and values do not match");
    loaded.take({begin, count}, rest.first(count), loaded.committed_);
    if (own) loaded.add_strays({begin, count}, rest.first(count));
    rest = rest.subspan(count);
  }
  if (!rest.empty()) return mismatch("pieces and values do not match");
  *this = std::move(loaded);
  return Status::ok();
}

}  // namespace thinwire
