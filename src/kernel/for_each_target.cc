// Highway's test hook behind a function that needs no Highway header.
// SPDX-License-Identifier: Apache-2.0
#include "kernel/for_each_target.h"

#include <cstdint>

#include "hwy/highway.h"
#include "hwy/targets.h"

namespace thinwire::kernel {

void for_each_target(const std::function<void(std::string_view)>& body) {
  struct Restore {
    ~Restore() { hwy::SetSupportedTargetsForTest(0); }
  } restore;
  const int64_t targets = hwy::SupportedTargets() & HWY_TARGETS;
  for (int bit = 62; bit >= 0; --bit) {  // a better target has a lower bit
    const int64_t target = int64_t{1} << bit;
    if ((targets & target) == 0) continue;
    hwy::SetSupportedTargetsForTest(target);
    body(hwy::TargetName(target));
  }
}

}  // namespace thinwire::kernel
