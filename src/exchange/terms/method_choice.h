// The method that an exchange uses for a codec, and what "auto" stands for.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "exchange/methods/method.h"
#include "thinwire/codec.h"
#include "thinwire/exchange.h"

namespace thinwire {

// Returns the method that is named so, or the usual one of the codec if the name is "auto". Fails
// with the choices when the name is unknown, or if the method does not fit the codec, the rule that
// combines contributions, or the results.
Result<const MethodEntry*> resolve_method(const std::string& name, const Codec& codec,
                                          const Combine& rule, Results results);

}  // namespace thinwire
