// TensorRule: gives tensors of some names a codec, a memory and a method of their own.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "thinwire/codec.h"

namespace thinwire {

// The codec, memory, method and grouping of the tensors whose names fit a pattern, instead of the
// exchange's own. "auto" and an absent grouping are the defaults of the rule's codec, as in
// ExchangeOptions.
struct TensorRule {
  std::string pattern;  // of names, as in fits_pattern: "*.bias"
  std::string codec;
  std::string feedback = "auto";
  std::string method = "auto";
  std::optional<Grouping> grouping = std::nullopt;

  bool operator==(const TensorRule&) const = default;
};

// Whether the whole name fits a pattern: `*` matches any characters, dots included, `?` one
// character, [abc] and [a-z] one of a set, [!abc] one that is not in it. Case matters. Like
// Python's fnmatchcase, byte by byte.
bool fits_pattern(std::string_view name, std::string_view pattern) noexcept;

}  // namespace thinwire
