// Warm-up, steps and cosine [Loshchilov and Hutter, ICLR 2017, equation 5 without restarts].
// SPDX-License-Identifier: Apache-2.0
#include "train/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace thinwire {

double learning_rate(const Options& recipe, const Timetable& timetable, uint64_t step) {
  const double rate = recipe.number("optimizer.lr");
  const auto warmup = static_cast<uint64_t>(std::round(
      recipe.number("schedule.warmup") * static_cast<double>(timetable.steps_per_epoch)));
  if (step < warmup) return rate * static_cast<double>(step + 1) / static_cast<double>(warmup);

  const std::string& name = recipe.text("schedule.name");
  if (name == "step") {
    double factor = 1;
    for (const double milestone : recipe.numbers("schedule.milestones"))
      if (timetable.epoch(step) >= milestone) factor *= recipe.number("schedule.factor");
    return rate * factor;
  }
  if (name == "cosine") {
    const double period =
        recipe.number("schedule.period") * static_cast<double>(timetable.steps_per_epoch);
    const double length = period > 0 ? period : static_cast<double>(timetable.steps - warmup);
    const double done = std::min(1.0, static_cast<double>(step - warmup) / length);
    const double floor = recipe.number("schedule.floor");
    return rate * (floor + (1 - floor) * (1 + std::cos(std::numbers::pi * done)) / 2);
  }
  return rate;
}

}  // namespace thinwire
