// One table row, and its value as a number.
// SPDX-License-Identifier: Apache-2.0
#include "codec/block_option.h"

#include <string>

namespace thinwire {

OptionInfo block_option(std::string_view fallback) {
  return {.name = "block",
          .type = OptionType::kChoice,
          .fallback = fallback,
          .choices = {"64", "256", "1024", "4096"},
          .unit = "values",
          .help = "values that share a scale"};
}

size_t block_length(const Options& options) { return std::stoul(options.text("block")); }

}  // namespace thinwire
