// The learning rate as a function of the step alone.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "thinwire/options.h"
#include "train/timetable.h"

namespace thinwire {

// During warm-up (w steps) step s gets (s + 1) / w of the rate the schedule starts with. Afterwards
//   constant: the rate
//   step:     rate x factor^(milestones passed)
//   cosine:   rate x (floor + (1 - floor) (1 + cos(pi (s - w) / (steps - w))) / 2)
double learning_rate(const Options& recipe, const Timetable& timetable, uint64_t step);

}  // namespace thinwire
