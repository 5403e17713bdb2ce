// CodingTerms: how streams are coded and combined, with every "auto" decided.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "exchange/rules/combine.h"
#include "thinwire/codec.h"
#include "thinwire/grouping.h"

namespace thinwire {

// The part of Terms (terms.h) that streams need.
struct CodingTerms {
  std::shared_ptr<const Codec> codec;
  std::string codec_text;  // with every option spelt out
  std::string feedback;
  std::shared_ptr<const Combine> combine;  // null: sums alone
  Grouping grouping = Grouping::kTensor;
};

}  // namespace thinwire
