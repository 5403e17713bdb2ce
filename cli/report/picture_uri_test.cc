// Tests of pictures in pages, against bytes that another writer made.
// SPDX-License-Identifier: Apache-2.0
#include "cli/report/picture_uri.h"

#include <gmock/gmock.h>

#include <string>

namespace thinwire::cli {
namespace {

using testing::EndsWith;

TEST(PictureUri, RowsGoFromTheBottomUpAndAreFilledToFourBytes) {
  // The headers, then fe fe fe ff ff ff 0 0 and 01 01 01 02 02 02 0 0; from Python's struct and
  // base64.
  EXPECT_EQ(
      picture_uri({.width = 2, .height = 2, .channels = 1, .values = {1, 2, 0xfe, 0xff}}),
      "data:image/bmp;base64,Qk1GAAAAAAAAADYAAAAoAAAAAgAAAAIAAAABABgAAAAAABAAAAATCwAAEwsAAAAAAAAA"
      "AAAA/v7+////AAABAQECAgIAAA==");
}

TEST(PictureUri, ColoursAreWrittenBlueFirst) {
  const std::string uri =
      picture_uri({.width = 1, .height = 1, .channels = 3, .values = {0xff, 0x80, 0x00}});
  EXPECT_THAT(uri, EndsWith("AID/AA=="));  // 00 80 ff, and one byte to fill up
}

}  // namespace
}  // namespace thinwire::cli
