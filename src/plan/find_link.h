// Finds the latency and the rate of a link by rounds of messages, whichever way they are sent.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <optional>

#include "thinwire/step_plan.h"

namespace thinwire {

// Messages of one size to another rank, by one way or by two, one after another.
struct MessageRound {
  double slower = 0;  // seconds, of the way that needs longer
  double by_all = 0;  // seconds, of all ways
};

// Among so many ranks there are so many ways, and after each the ranks agree, which takes so many
// messages one after another.
int ways_among(int ranks);
int turns_among(int ranks);

// probe_link, with rounds of messages of so many bytes, of which all ranks know the times.
ProbedLink find_link(int ranks, double seconds, const std::optional<LinkSpec>& known,
                     const std::function<MessageRound(size_t bytes)>& round);

// Seconds that find_link needs for the rate of a known link with a latency: that of messages of one
// byte and of two longer ones by every way. 20 ms at least, in which several messages fit if the
// latency is small.
double least_probe_seconds(int ranks, const LinkSpec& known);

// Of the probe after one that found `found`. If that was a bound far below the known rate, the link
// may have become slower, and the next probe needs as many times longer to tell, up to 20 times.
double next_probe_seconds(int ranks, const LinkSpec& known, const ProbedLink& found);

}  // namespace thinwire
