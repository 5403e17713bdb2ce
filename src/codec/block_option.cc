// The option `block`: its row, its value as a number, and the blocks of a stream.
// SPDX-License-Identifier: Apache-2.0
#include "codec/block_option.h"

#include <string>
#include <utility>

namespace thinwire {

OptionInfo block_option(std::string_view fallback, std::vector<std::string_view> choices) {
  return {.name = "block",
          .type = OptionType::kChoice,
          .fallback = fallback,
          .choices = std::move(choices),
          .unit = "values",
          .help = "values that share a scale"};
}

size_t block_length(const Options& options) {
  const std::string& text = options.text("block");
  return text == "tensor" ? 0 : std::stoul(text);
}

std::vector<Part> parts_of(const StreamSpec& stream, size_t block) {
  if (block != 0) return {{.begin = 0, .count = stream.count(), .block = block}};
  std::vector<Part> parts;
  size_t begin = 0;
  for (const TensorSpec& tensor : stream.tensors) {
    const size_t count = tensor.count();
    if (count > 0) parts.push_back({.begin = begin, .count = count, .block = count});
    begin += count;
  }
  return parts;
}

}  // namespace thinwire
