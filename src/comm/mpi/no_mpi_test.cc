// Tests of the errors of a build without MPI when MPI is requested.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "thinwire/group.h"

namespace thinwire {
namespace {

TEST(NoMpi, SaysHowToGetIt) {
  const auto group = make_mpi_group();
  ASSERT_FALSE(group.is_ok());
  EXPECT_EQ(group.status().code(), ErrorCode::kUnsupported);
  EXPECT_THAT(group.status().message(), testing::HasSubstr("THINWIRE_WITH_MPI"));
}

}  // namespace
}  // namespace thinwire
