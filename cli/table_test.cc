// Tests of tables for terminals and documents.
// SPDX-License-Identifier: Apache-2.0
#include "cli/table.h"

#include <gmock/gmock.h>

#include "thinwire/status.h"

namespace thinwire::cli {
namespace {

Table sample() {
  Table table({"codec", "bytes"});
  table.add({"fp32", "1,000,000"});
  table.add({"sidco:density=0.01", "7"});
  return table;
}

TEST(Table, AlignsNamesLeftAndNumbersRight) {
  EXPECT_EQ(sample().aligned(),
            "  codec                    bytes\n"
            "  ------------------   ---------\n"
            "  fp32                 1,000,000\n"
            "  sidco:density=0.01           7\n");
}

TEST(Table, MarkdownSaysTheAlignment) {
  EXPECT_EQ(sample().markdown(),
            "| codec              |     bytes |\n"
            "|--------------------|----------:|\n"
            "| fp32               | 1,000,000 |\n"
            "| sidco:density=0.01 |         7 |\n");
}

TEST(Table, RefusesUnevenRows) {
  Table table({"a", "b"});
  EXPECT_THROW(table.add({"one"}), Error);
}

}  // namespace
}  // namespace thinwire::cli
