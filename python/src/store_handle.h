// The object that Python holds for a store.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "sole_user.h"
#include "thinwire/store.h"

namespace thinwire::python {

struct StoreHandle {
  static constexpr const char* kWho = "store";

  Store store;
  UseMark use;
};

}  // namespace thinwire::python
