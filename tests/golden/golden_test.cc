// The bytes of every codec are those on file: a payload written years ago must still be read.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "support/degenerate_answers.h"
#include "support/golden_cases.h"
#include "support/golden_frames.h"
#include "support/payload_sizes.h"
#include "thinwire/codec.h"

namespace thinwire {
namespace {

std::string read(const std::string& name) {
  std::ifstream file(std::string(THINWIRE_GOLDEN) + "/" + name);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

class Golden : public ::testing::TestWithParam<const CodecEntry*> {};

TEST_P(Golden, PayloadsAreThoseOnFile) {
  const std::string name(GetParam()->info.name);
  const std::string expected = read(name + ".txt");
  ASSERT_FALSE(expected.empty()) << "record tests/golden/" << name
                                 << ".txt with: build/record_golden " << name;
  std::istringstream want(expected), have(samples::golden_text(*GetParam()));
  std::string want_line, have_line;
  for (int line = 1; std::getline(want, want_line); ++line) {
    ASSERT_TRUE(std::getline(have, have_line)) << name << ".txt:" << line;
    ASSERT_EQ(have_line, want_line)
        << name << ".txt:" << line << ": other bytes need another codec id";
  }
  EXPECT_FALSE(std::getline(have, have_line)) << "more cases than on file";
}

INSTANTIATE_TEST_SUITE_P(Registry, Golden, ::testing::ValuesIn(list_codecs()),
                         [](const auto& test) { return std::string(test.param->info.name); });

TEST(Golden, IdsAndNamesAreThoseOnFile) {
  std::string have;
  for (const CodecEntry* entry : list_codecs())
    have += std::to_string(entry->info.id) + " " + std::string(entry->info.name) + "\n";
  EXPECT_EQ(have, read("codec_ids.txt")) << "ids and names are never reused, only added";
}

// A table on file, and what it is now; `flag` of record_golden writes it.
void expect_on_file(const std::string& file, const std::string& now, const std::string& flag) {
  std::istringstream want(read(file)), have(now);
  std::string want_line, have_line;
  while (std::getline(have, have_line)) {
    std::getline(want, want_line);
    ASSERT_EQ(have_line, want_line)
        << "if meant: build/record_golden " << flag << " > tests/golden/" << file;
  }
  EXPECT_FALSE(std::getline(want, want_line)) << "more rows on file";
}

TEST(Golden, SizesOfPayloadsAreThoseOnFile) {
  expect_on_file("payload_sizes.csv", samples::payload_sizes(), "--sizes");
}

TEST(Golden, FramesAreThoseOnFile) {
  expect_on_file("frames.txt", samples::golden_frames(), "--frames");
}

TEST(Golden, AnswersToDegenerateValuesAreThoseOnFile) {
  expect_on_file("degenerate.csv", samples::degenerate_answers(), "--degenerate");
}

}  // namespace
}  // namespace thinwire
