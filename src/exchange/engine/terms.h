// Terms: an exchange's options with every "auto" decided.
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

// Options with every "auto" decided, as they are in one step. Only codec and method change over
// time.
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

}  // namespace thinwire
