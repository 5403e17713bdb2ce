// What runners answer that cannot go on with other ranks, or take steps back.
// SPDX-License-Identifier: Apache-2.0
#include "exchange/runner/runner.h"

namespace thinwire {

StepReport Runner::conclude(uint64_t /*word*/) {
  throw Error(ErrorCode::kUnsupported,
              "exchange: a hierarchy, or columns, cannot go on with other ranks");
}

void Runner::settle(bool /*counts*/) {
  throw Error(ErrorCode::kUnsupported, "exchange: a hierarchy, or columns, cannot take steps back");
}

}  // namespace thinwire
