// What any synchroniser makes of the workers' parameters, remembers and sends is what is on file,
// to the bit.
// SPDX-License-Identifier: Apache-2.0
#include "recorded/sync_results.h"

#include <gtest/gtest.h>

#include "recorded/results_on_file.h"

namespace thinwire::testing {
namespace {

TEST(SyncResults, AreThoseOnFile) {
  expect_those_on_file(sync_results(), "sync_results.txt", "record_synchronisers");
}

}  // namespace
}  // namespace thinwire::testing
