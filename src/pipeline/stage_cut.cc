// Cuts a sequence of layers: balanced, by dynamic programming over the last stages, or by name.
// SPDX-License-Identifier: Apache-2.0
#include "pipeline/stage_cut.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/named_row.h"

namespace thinwire {
namespace {

Status bad(const std::string& why) { return Status::fail(ErrorCode::kBadOption, "stages: " + why); }

// least[k][i]: what the most expensive of k + 1 stages that hold layers i and up costs at best.
using Table = std::vector<std::vector<double>>;

Table least_costs(const std::vector<double>& before, size_t stages) {
  const size_t layers = before.size() - 1;
  Table least(stages, std::vector<double>(layers + 1, std::numeric_limits<double>::infinity()));
  for (size_t i = 0; i < layers; ++i) least[0][i] = before[layers] - before[i];
  for (size_t k = 1; k < stages; ++k)
    for (size_t i = 0; i + k < layers; ++i)
      for (size_t end = i + 1; end + k <= layers; ++end)
        least[k][i] = std::min(least[k][i], std::max(before[end] - before[i], least[k - 1][end]));
  return least;
}

}  // namespace

Result<std::vector<size_t>> balanced_cut(std::span<const double> costs, size_t stages) {
  if (stages == 0 || stages > costs.size())
    return bad("cannot cut " + std::to_string(costs.size()) + " layers into " +
               std::to_string(stages));
  std::vector<double> before = {0};  // of all layers before each
  for (const double cost : costs) {
    if (!(std::isfinite(cost) && cost >= 0)) return bad("a layer's cost is not a number from 0 up");
    before.push_back(before.back() + cost);
  }
  if (!std::isfinite(before.back())) return bad("the sum of all costs is too large");
  const Table least = least_costs(before, stages);
  const double best = least[stages - 1][0];
  std::vector<size_t> starts = {0};
  for (size_t k = stages - 1; k > 0; --k) {
    size_t end = starts.back() + 1;
    while (std::max(before[end] - before[starts.back()], least[k - 1][end]) > best) ++end;
    starts.push_back(end);
  }
  return starts;
}

Result<std::vector<size_t>> named_cut(std::span<const std::string> layers,
                                      std::span<const std::string> last_of_stage) {
  if (layers.empty()) return bad("there are no layers");
  std::vector<size_t> starts = {0};
  for (const std::string& name : last_of_stage) {
    auto found = find_row(layers, "layer", name, "stages: ");
    if (!found) return found.status();
    const auto start = static_cast<size_t>(found.value() - layers.data()) + 1;
    if (start == layers.size()) return bad("nothing follows layer '" + name + "'");
    if (start <= starts.back()) return bad("layer '" + name + "' is not behind the cut before it");
    starts.push_back(start);
  }
  return starts;
}

}  // namespace thinwire
