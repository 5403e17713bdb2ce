// A failure that the other ranks survive.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "thinwire/status.h"

namespace thinwire {

// Thrown on a rank that can go on no more, when the others have been told and go on without it. Who
// catches it lets its groups go and does not abort them; run_local does so.
class SurvivedError : public Error {
 public:
  using Error::Error;
};

}  // namespace thinwire
