// SurvivedError: the failure of a rank without which the other ranks go on.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "thinwire/status.h"

namespace thinwire {

// Thrown on a rank that cannot go on, if the other ranks have been told and go on without it. The
// code that catches it destroys the rank's groups and does not abort them; run_local does so.
class SurvivedError : public Error {
 public:
  using Error::Error;
};

}  // namespace thinwire
