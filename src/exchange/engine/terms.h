// Terms: an exchange's options with every "auto" decided, and their text that ranks compare.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "thinwire/codec.h"
#include "thinwire/exchange.h"

namespace thinwire {

class Combine;
struct MethodEntry;

// Options with every "auto" decided, as they are in one step. Only codec and method change over time.
struct Terms {
  std::shared_ptr<const Codec> codec;
  std::string codec_text;  // with every option spelt out
  std::string feedback;
  const MethodEntry* method = nullptr;
  std::shared_ptr<const Combine> combine;
  Grouping grouping = Grouping::kTensor;
  bool divisible = false;  // streams may be cut at any value, in every step
  bool everybody = false;  // each rank combines all contributions by itself, in every step
};

// Those of streams in a critical regime or of the others; only their codecs differ. Fails with the
// choices when a name is unknown or a codec of the schedule does not fit the method.
Result<Terms> resolve_terms(const ExchangeOptions& options, uint64_t step, bool critical = true);

// What an exchange with these options does to its tensors, in lines; each begins with `before`. Options
// that say the same in other words have the same text. Options that do not settle appear as they were given.
std::string setting_text(const ExchangeOptions& options, const std::string& before = "");

// What is fixed from the first step to the last, in lines: how contributions are combined, what is dense,
// buckets, seed.
std::string fixed_text(const ExchangeOptions& options);

// One line per thing that decides what travels: version, codec with every option spelt out,
// feedback, method, rules, buckets, seed, and each tensor's name, shape and kind. A mistake on one rank
// is told to all. Without shapes where columns may have different ones.
enum class Shapes : uint8_t { kSame, kAny };
std::string agreement_text(const ExchangeOptions& options, const std::vector<TensorSpec>& tensors,
                           Shapes shapes = Shapes::kSame);

}  // namespace thinwire
