// The options of an exchange as text, which ranks compare.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "thinwire/exchange.h"

namespace thinwire {

// What an exchange with these options does to its tensors, in lines; each begins with `before`.
// Options that say the same in other words have the same text. Options that do not settle appear as
// they were given.
std::string setting_text(const ExchangeOptions& options, const std::string& before = "");

// What is fixed from the first step to the last, in lines: how contributions are combined, what is
// dense, buckets, seed.
std::string fixed_text(const ExchangeOptions& options);

// One line per thing that decides what travels: version, codec with every option spelt out,
// feedback, method, rules, buckets, seed, and each tensor's name, shape and kind. A mistake on one
// rank is told to all. Without shapes where columns may have different ones.
enum class Shapes : uint8_t { kSame, kAny };
std::string agreement_text(const ExchangeOptions& options, const std::vector<TensorSpec>& tensors,
                           Shapes shapes = Shapes::kSame);

}  // namespace thinwire
