// on_ranks for ranks that are threads and have their tensors on fake devices.
// SPDX-License-Identifier: Apache-2.0
#include <chrono>

#include "exchange/testing/staged_exchange.h"
#include "multirank/ranks.h"

namespace thinwire {

std::vector<int> rank_counts() {
  testing::on_fake_devices() = true;
  return {1, 2, 3};
}

void on_ranks(int count, const std::function<void(Group&)>& body) {
  run_local(count, [&](Group& group) {
    group.set_deadline(std::chrono::seconds(20));
    body(group);
  });
}

}  // namespace thinwire
