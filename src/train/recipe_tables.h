// The keys of a recipe, table by table: type, range, default, meaning.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "thinwire/options.h"

namespace thinwire {

inline constexpr double kMany = 0x1p53;  // the largest whole number that every tool can read back

std::vector<OptionInfo> data_keys();
std::vector<OptionInfo> model_keys();
std::vector<OptionInfo> train_keys();
std::vector<OptionInfo> optimizer_keys();
std::vector<OptionInfo> schedule_keys();
std::vector<OptionInfo> clip_keys();
std::vector<OptionInfo> sync_keys();
std::vector<OptionInfo> pipeline_keys();
std::vector<OptionInfo> tensor_keys();
std::vector<OptionInfo> exchange_keys();
std::vector<OptionInfo> checkpoint_keys();
std::vector<OptionInfo> run_keys();

}  // namespace thinwire
