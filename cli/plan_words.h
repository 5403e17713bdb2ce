// Words that the table of a plan and that of several numbers of ranks share.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "cli/plan_table.h"

namespace thinwire::cli {

std::string milliseconds(double seconds);  // "0.12", "12.3", "123"

// Over fp32.
double speed_up(const PlanTable& plan, const PlanRow& row);

// "1.23 MB"; with ~ in front where it is an estimate.
std::string bytes_text(const StepPrediction& step, double bytes);

// "demo: 1,234 values in 6 tensors".
std::string head_of(const PlanTable& plan);

// What predictions rest on.
std::string basis_of(const PlanTable& plan);

}  // namespace thinwire::cli
