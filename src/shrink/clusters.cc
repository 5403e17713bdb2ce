// Fits the centres of clusters, and finds the cluster of each value.
// SPDX-License-Identifier: Apache-2.0
#include "shrink/clusters.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace thinwire {
namespace {

constexpr size_t kSample = size_t{1} << 18;
constexpr int kRounds = 20;

// Where one cluster ends and the next begins.
std::vector<float> borders(std::span<const float> centres) {
  std::vector<float> middle;
  for (size_t i = 1; i < centres.size(); ++i)
    middle.push_back(0.5f * centres[i - 1] + 0.5f * centres[i]);
  return middle;
}

size_t cluster_of(float value, const std::vector<float>& middle) {
  return static_cast<size_t>(std::upper_bound(middle.begin(), middle.end(), value) -
                             middle.begin());
}

// Half by rank, half by value: clusters are narrow where values are dense, as the least error wants
// it.
std::vector<float> first_centres(const std::vector<float>& sorted, size_t count) {
  std::vector<float> centres;
  const float low = sorted.front(), high = sorted.back();
  for (size_t i = 0; i < count; ++i) {
    const double share = (static_cast<double>(i) + 0.5) / static_cast<double>(count);
    const float by_rank = sorted[static_cast<size_t>(share * static_cast<double>(sorted.size()))];
    const auto part = static_cast<float>(share);
    centres.push_back(0.5f * by_rank + 0.5f * ((1 - part) * low + part * high));
  }
  return centres;
}

// Lloyd's algorithm on sorted values, whose sums up to each place make a round cheap.
std::vector<float> fit_centres(std::vector<float> values, size_t count,
                               std::span<const float> before) {
  if (values.empty()) return std::vector<float>(count, 0.0f);
  std::sort(values.begin(), values.end());
  std::vector<double> sums(values.size() + 1, 0.0);
  for (size_t i = 0; i < values.size(); ++i) sums[i + 1] = sums[i] + values[i];
  std::vector<float> centres = before.size() == count
                                   ? std::vector<float>(before.begin(), before.end())
                                   : first_centres(values, count);
  for (int round = 0; round < kRounds; ++round) {
    const std::vector<float> middle = borders(centres), last = centres;
    size_t begin = 0;
    for (size_t i = 0; i < count; ++i) {
      const size_t end =
          i + 1 == count
              ? values.size()
              : static_cast<size_t>(std::lower_bound(values.begin(), values.end(), middle[i]) -
                                    values.begin());
      if (end > begin)  // one without members stays where it is
        centres[i] =
            static_cast<float>((sums[end] - sums[begin]) / static_cast<double>(end - begin));
      begin = std::max(begin, end);
    }
    if (centres == last) break;
  }
  return centres;
}

// The magnitude below which a share of the values lies.
float magnitude_at(std::vector<float>& magnitudes, double share) {
  const auto rank = static_cast<size_t>(share * static_cast<double>(magnitudes.size()));
  if (rank >= magnitudes.size()) return std::numeric_limits<float>::infinity();
  const auto at = magnitudes.begin() + static_cast<std::ptrdiff_t>(rank);
  std::nth_element(magnitudes.begin(), at, magnitudes.end());
  return *at;
}

}  // namespace

Clusters make_clusters(std::span<const float> values, const Treatment& treatment,
                       std::span<const float> before) {
  std::vector<float> magnitudes;
  for (const float value : values) magnitudes.push_back(std::fabs(value));
  const float least = magnitude_at(magnitudes, treatment.prune);
  const float most = magnitude_at(magnitudes, 1 - treatment.keep);
  const auto is_pruned = [&](float value) { return value == 0 || std::fabs(value) < least; };
  const auto stays = [&](float value) {
    return !is_pruned(value) && treatment.keep > 0 && std::fabs(value) > most;
  };

  const size_t half = size_t{1} << (treatment.bits - 1);
  const size_t stride = values.size() / kSample + 1;
  std::vector<float> negative, positive;
  for (size_t i = 0; i < values.size(); i += stride)
    if (!is_pruned(values[i]) && !stays(values[i]))
      (values[i] < 0 ? negative : positive).push_back(values[i]);
  const bool goes_on = before.size() == 2 * half;
  Clusters clusters;
  const auto below =
      fit_centres(std::move(negative), half, goes_on ? before.first(half) : before.first(0));
  const auto above =
      fit_centres(std::move(positive), half, goes_on ? before.subspan(half) : before.first(0));
  clusters.centres = below;
  clusters.centres.insert(clusters.centres.end(), above.begin(), above.end());

  const std::vector<float> borders_below = borders(below), borders_above = borders(above);
  clusters.numbers.reserve(values.size());
  for (const float value : values) {
    size_t number = half + 1;
    if (stays(value)) {
      number = value < 0 ? 0 : 2 * half + 2;
      clusters.kept.push_back(value);
    } else if (!is_pruned(value)) {
      number = value < 0 ? 1 + cluster_of(value, borders_below)
                         : half + 2 + cluster_of(value, borders_above);
    }
    clusters.numbers.push_back(static_cast<uint16_t>(number));
  }
  return clusters;
}

Status read_clusters(const Clusters& clusters, std::span<float> values) {
  const uint32_t count = clusters.count();
  const size_t half = clusters.centres.size() / 2;
  size_t kept = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    const uint32_t number = clusters.numbers[i];
    if (number >= count)
      return Status::fail(ErrorCode::kCorrupt, "a value belongs to a cluster that is not there");
    if (is_kept(number, count)) {
      if (kept == clusters.kept.size())
        return Status::fail(ErrorCode::kCorrupt, "more values are kept than there are");
      values[i] = clusters.kept[kept++];
    } else if (number == half + 1) {
      values[i] = 0;
    } else {
      values[i] = clusters.centres[number <= half ? number - 1 : number - 2];
    }
  }
  if (kept != clusters.kept.size())
    return Status::fail(ErrorCode::kCorrupt, "fewer values are kept than there are");
  return Status::ok();
}

}  // namespace thinwire
