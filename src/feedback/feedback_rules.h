// The built-in feedback rules: one declaration each, one row each in feedback_registry.cc.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "thinwire/feedback.h"

namespace thinwire {

const FeedbackEntry& none_entry();
const FeedbackEntry& residual_entry();

}  // namespace thinwire
