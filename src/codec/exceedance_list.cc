// ExceedanceList: collects values above a threshold, compacts them, bounds their number.
// SPDX-License-Identifier: Apache-2.0
#include "codec/exceedance_list.h"

#include <algorithm>
#include <cassert>
#include <cmath>

#include "kernel/kth_magnitude.h"
#include "kernel/select.h"
#include "kernel/tail_moments.h"
#include "kernel/vector_moments.h"

namespace thinwire {
namespace {

constexpr size_t kSlack = 4096;  // entries: room that makes small limits cheap

}  // namespace

bool ExceedanceList::grow(size_t limit) {
  if (positions_.size() >= limit) return false;
  positions_.resize(std::min(limit, std::max(2 * positions_.size(), kSlack)));
  values_.resize(positions_.size());
  return true;
}

bool ExceedanceList::collect(std::span<const float> values, float threshold, size_t limit) {
  size_ = 0;
  return extend(values, 0, threshold, limit);
}

bool ExceedanceList::collect(std::span<const float> values, float threshold, size_t limit,
                             float tail_threshold, float largest, kernel::TailMoments& tail) {
  assert(side_ == kernel::Side::kBoth);
  kernel::Selection listed;
  tail = kernel::tail_moments_and_list(values, tail_threshold, largest, threshold, positions_,
                                       values_, listed);
  size_ = listed.kept;
  return extend(values, listed.next, threshold, limit);
}

bool ExceedanceList::collect(std::span<const float> values, float threshold, size_t limit,
                             double& sum) {
  sum = 0;
  size_ = 0;
  bool fits = true;
  for (size_t begin = 0; begin < values.size(); begin += kernel::kSumChunk) {
    const size_t end = std::min(begin + kernel::kSumChunk, values.size());
    sum += kernel::value_sum(values.subspan(begin, end - begin));
    fits = fits && extend(values.first(end), begin, threshold, limit);
  }
  return fits;
}

bool ExceedanceList::extend(std::span<const float> values, size_t begin, float threshold,
                            size_t limit) {
  while (begin < values.size()) {
    if (size_ == positions_.size() && !grow(limit + 1)) return false;
    const auto got =
        kernel::select_side(values, begin, threshold, side_, std::span(positions_).subspan(size_),
                            std::span(values_).subspan(size_));
    size_ += got.kept;
    begin = got.next;
  }
  return size_ <= limit;
}

void ExceedanceList::select(std::span<const float> values, float threshold, size_t most,
                            std::span<float> rest) {
  assert(most > 0 || values.empty());
  size_ = 0;
  const size_t room = std::min(values.size(), most + most / 4 + kSlack);
  for (size_t begin = 0; begin < values.size();) {
    // Everything so far that is not among the largest never will be; nor will what comes later and
    // is no larger than the least of them.
    if (size_ == positions_.size() && !grow(room)) threshold = keep_largest(most, rest);
    const auto got =
        kernel::select_side(values, begin, threshold, side_, std::span(positions_).subspan(size_),
                            std::span(values_).subspan(size_), rest);
    size_ += got.kept;
    begin = got.next;
  }
  if (size_ > most) keep_largest(most, rest);
}

void ExceedanceList::leave(std::span<const float> values, std::span<float> rest) const {
  if (rest.empty()) return;
  if (rest.data() != values.data()) std::copy(values.begin(), values.end(), rest.begin());
  for (const uint32_t position : positions()) rest[position] = 0.0f;
}

void ExceedanceList::compact(float threshold) noexcept {
  const std::span kept(values_.data(), size_);
  const std::span at(positions_.data(), size_);
  size_ = kernel::compact_above(kept, at, threshold, kept, at);
}

float ExceedanceList::keep_largest(size_t most, std::span<float> rest) {
  assert(most > 0 && size_ > 0);
  const auto [least, above] = kernel::kth_magnitude(values(), std::min(most, size_));
  if (size_ <= most) return least;
  size_t equal = most - above;
  size_t kept = 0;
  for (size_t i = 0; i < size_; ++i) {
    const float value = values_[i];
    const uint32_t position = positions_[i];
    const float magnitude = std::abs(value);
    if (magnitude > least || (magnitude == least && equal > 0)) {
      equal -= magnitude == least;
      values_[kept] = value;
      positions_[kept++] = position;
    } else if (!rest.empty()) {
      rest[position] = value;
    }
  }
  size_ = kept;
  return least;
}

}  // namespace thinwire
