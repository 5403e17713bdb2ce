// What any method gives, remembers and sends is what is on file, to the bit.
// SPDX-License-Identifier: Apache-2.0
#include "recorded/exchange_results.h"

#include <gtest/gtest.h>

#include "recorded/results_on_file.h"

namespace thinwire::testing {
namespace {

TEST(ExchangeResults, AreThoseOnFile) {
  expect_those_on_file(exchange_results(), "exchange_results.txt", "record_exchanges");
}

}  // namespace
}  // namespace thinwire::testing
