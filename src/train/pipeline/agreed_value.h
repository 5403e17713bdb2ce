// agreed: values that every rank makes from the same options.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <utility>

#include "thinwire/group.h"
#include "thinwire/status.h"

namespace thinwire {

// The value. Throws AgreedError where there is none: the other ranks have the same options, so
// they fail too.
template <typename T>
T agreed(Result<T> made) {
  if (!made) throw AgreedError(made.status().code(), made.status().message());
  return std::move(made).value();
}

}  // namespace thinwire
