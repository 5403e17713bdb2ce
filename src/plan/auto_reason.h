// What codec "auto" says of its decisions, for people to read.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "thinwire/step_plan.h"

namespace thinwire {

// Three digits: "12.3 ms", "1.2 s".
std::string time_text(double seconds);

// "971 Mbit/s, 0.12 ms".
std::string link_text(const LinkSpec& link);

// Why a step of `seconds` with the codecs of that name was decided on, beside a step of `dense`
// seconds with fp32. A computation of 0 seconds was not measured.
std::string reason_text(const std::string& name, double seconds, double dense, const LinkSpec& link,
                        double compute_seconds);

}  // namespace thinwire
