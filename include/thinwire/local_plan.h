// Plans of local methods: workers that step by themselves, and communicate in rounds.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "thinwire/step_plan.h"
#include "thinwire/synchroniser.h"

namespace thinwire {

// The mean over steps, of which every tau-th (or as the method has it) is followed by a round:
// seconds, coding, wire and bytes. longest_seconds is that of a step with its longest round.
// Nothing overlaps: rounds begin when a step has ended.
//
// Rounds that are means (average, easgd, diloco, sparseloco, downpour, parle) are steps of the
// exchange that forms them, and their bytes are exact where those are. For leader, who leads is not
// known: bytes and seconds are means over leaders, and estimates. Groups of `leader:groups=0` are
// the machines of `request`. For gossip they are means over the rounds in which all peers have had
// their turn, and over 16 rounds of a random graph. Memory is that of codecs, without the method's
// own vectors.
//
// inside_bytes are those of frames, for leader and gossip; with several ranks on a machine they are
// empty for the other methods.
//
// Fails as make_synchroniser does (so also for gossip with a lossy codec), as predict_step does,
// for asynchronous workers, and for streaming, whose rounds overlap steps.
Result<StepPrediction> predict_local_steps(const StepTimeline& timeline,
                                           const SynchroniserOptions& options,
                                           const PlanRequest& request, CostTable& costs);

}  // namespace thinwire
