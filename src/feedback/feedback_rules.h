// The built-in feedback rules: one declaration each, one row each in feedback_registry.cc.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "thinwire/feedback.h"

namespace thinwire {

const FeedbackEntry& none_entry();
const FeedbackEntry& residual_entry();
const FeedbackEntry& lowpass_entry();
const FeedbackEntry& dgc_memory_entry();
const FeedbackEntry& ef21_entry();
const FeedbackEntry& loco_entry();
const FeedbackEntry& efmixed_entry();
const FeedbackEntry& momentum_entry();
const FeedbackEntry& velocity_entry();
const FeedbackEntry& ahead_entry();

}  // namespace thinwire
