// Tests of the agreement that ends a step: a damaged word ends the exchange.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "comm/tags.h"
#include "exchange/testing/error_of.h"
#include "exchange/testing/exchange_testing.h"
#include "exchange/testing/tampering_group.h"

namespace thinwire::testing {
namespace {

using ::testing::HasSubstr;

// Rank 2 receives a damaged word. Without a checksum it would skip a step that counts on the
// others.
TEST(ExchangeVerdict, ADamagedWordEndsTheExchange) {
  const ExchangeOptions kinds[] = {
      {}, {.method = "gather"}, {.inside = 2}, {.columns = 2}, {.results = Results::kShard}};
  for (const ExchangeOptions& options : kinds)
    for (const size_t byte : {size_t{0}, size_t{3}, size_t{7}, size_t{12}})
      run_local(4, [&](Group& group) {
        bool damages = false;
        TamperingGroup tampering(group, [&](int /*from*/, int tag, std::span<std::byte> message) {
          if (tag == kMaximumTag && std::exchange(damages, false)) message[byte] ^= std::byte{4};
        });
        Side side(tampering, small_model(), options);
        side.step(0);
        damages = group.rank() == 2;
        const std::string error = error_of([&] {
          side.step(1);
          side.step(2);
        });
        // In a hierarchy rank 2 receives the first word from the other rank of its machine.
        const std::string from = options.inside == 2 ? "3" : "1";
        EXPECT_THAT(error, HasSubstr("the word of rank " + from +
                                     " arrived corrupt, and with it what ranks decide by"));
        EXPECT_FALSE(damages);
      });
}

}  // namespace
}  // namespace thinwire::testing
