// Tests of which names count as similar to a typed one.
// SPDX-License-Identifier: Apache-2.0
#include "thinwire/near_miss.h"

#include <gtest/gtest.h>

#include <vector>

namespace thinwire {
namespace {

const std::vector<std::string> kNames = {"epochs", "batch", "seed", "adacomp", "lr"};

TEST(NearMiss, NearestForgivesTwoLettersAndAThirdOfTheWord) {
  EXPECT_EQ(nearest("epoch", kNames), "epochs");
  EXPECT_EQ(nearest("ehpocs", kNames), "epochs");  // two swaps of neighbours
  EXPECT_EQ(nearest("adacmop", kNames), "adacomp");
  EXPECT_EQ(nearest("sed", kNames), "seed");
  EXPECT_EQ(nearest("l", kNames), "");  // half of the word is missing
  EXPECT_EQ(nearest("momentum", kNames), "");
}

TEST(NearMiss, ErrorsEndWithWhatIsKnown) {
  EXPECT_EQ(did_you_mean("btach", kNames), "; did you mean 'batch'?");
  EXPECT_EQ(did_you_mean("xyz", kNames), "");
  EXPECT_EQ(known_names("btach", std::span(kNames).first(2)),
            "known: epochs, batch; did you mean 'batch'?");
  EXPECT_EQ(known_names("xyz", std::span(kNames).first(1)), "known: epochs");
}

}  // namespace
}  // namespace thinwire
