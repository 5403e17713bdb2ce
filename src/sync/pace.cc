// Paces without messages: a round after every so many steps, or as a record says.
// SPDX-License-Identifier: Apache-2.0
#include "sync/pace.h"

#include <algorithm>
#include <numeric>

namespace thinwire {
namespace {

class SteadyPace final : public Pace {
 public:
  SteadyPace(uint64_t period, int ranks) : period_(period), ranks_(static_cast<size_t>(ranks)) {
    std::iota(ranks_.begin(), ranks_.end(), 0);
  }

  std::optional<RoundCall> after_step(uint64_t steps) override {
    if (steps % period_ != 0) return std::nullopt;
    return RoundCall{.number = steps / period_, .ranks = ranks_};
  }

 private:
  const uint64_t period_;
  std::vector<int> ranks_;
};

class RecordedPace final : public Pace {
 public:
  explicit RecordedPace(std::vector<RecordedRound> rounds) : rounds_(std::move(rounds)) {}

  std::optional<RoundCall> after_step(uint64_t steps) override {
    const auto found = std::find_if(rounds_.begin(), rounds_.end(),
                                    [&](const RecordedRound& one) { return one.step == steps; });
    if (found == rounds_.end()) return std::nullopt;
    return RoundCall{.number = found->round + 1, .ranks = found->ranks};
  }

 private:
  const std::vector<RecordedRound> rounds_;
};

}  // namespace

std::unique_ptr<Pace> make_steady_pace(uint64_t period, int ranks) {
  return std::make_unique<SteadyPace>(period, ranks);
}

std::unique_ptr<Pace> make_recorded_pace(const std::vector<RecordedRound>& rounds) {
  return std::make_unique<RecordedPace>(rounds);
}

}  // namespace thinwire
