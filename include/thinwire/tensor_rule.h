// Which tensors of a model have a codec, a memory and a method of their own.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "thinwire/codec.h"

namespace thinwire {

// What tensors of some names have instead of the exchange's own codec, memory, method and grouping. What
// a rule leaves open is what its codec goes with, as in ExchangeOptions.
struct TensorRule {
  std::string pattern;  // of names, as fits_pattern reads it: "*.bias"
  std::string codec;
  std::string feedback = "auto";
  std::string method = "auto";
  std::optional<Grouping> grouping = std::nullopt;

  bool operator==(const TensorRule&) const = default;
};

// Whether a whole name fits a pattern: `*` stands for any characters, dots included, `?` for one, [abc] and
// [a-z] for one of a set, [!abc] for one that is not in it. Case counts. As Python's fnmatchcase, byte by
// byte.
bool fits_pattern(std::string_view name, std::string_view pattern) noexcept;

}  // namespace thinwire
