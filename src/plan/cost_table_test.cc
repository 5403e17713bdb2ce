// Tests of measured costs and of the file that keeps them.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "core/machine.h"
#include "thinwire/step_plan.h"
#include "thinwire/threads.h"

namespace thinwire {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr CodecCost kCost{.encode_seconds_per_value = 1.25e-9,
                          .decode_seconds_per_value = 3e-10,
                          .seconds_per_frame = 2e-6,
                          .bytes_per_value = 0.061,
                          .bytes_per_frame = 17.5,
                          .memory_bytes_per_value = 8};

TEST(CostTable, IsReadBackFromItsText) {
  CostTable table;
  table.set({.codec = "topk:density=0.01"}, kCost);
  table.set({.codec = "int8"}, {});
  const double copies = table.copies();
  const std::string text = table.to_text();
  EXPECT_THAT(text, HasSubstr("processor: " + processor_model() + "\n"));
  CostTable read = CostTable::from_text(text).value();
  EXPECT_EQ(read.to_text(), text);
  EXPECT_EQ(read.copies(), copies);
  EXPECT_EQ(read.size(), 3u);
  // The same codec in other words, and its default memory by name: nothing is measured.
  const CodecCost& cost =
      read.of({.codec = "topk:values=fp32,density=0.01", .feedback = "residual"});
  EXPECT_EQ(cost.encode_seconds_per_value, kCost.encode_seconds_per_value);
  EXPECT_EQ(cost.bytes_per_frame, kCost.bytes_per_frame);
  EXPECT_EQ(read.size(), 3u);
}

// Plans of `thinwire train` measure norms and those of tw.compress do not, and both know the same
// file. Files of before tell none apart: theirs are those with norms.
TEST(CostTable, CostsWithNormsAndWithoutAreTwo) {
  CostTable table;
  table.set({.codec = "int8", .norms = true}, kCost);
  table.set({.codec = "int8", .norms = false}, {});
  CostTable read = CostTable::from_text(table.to_text()).value();
  EXPECT_EQ(read.size(), 2u);
  EXPECT_EQ(read.of({.codec = "int8", .norms = true}).bytes_per_frame, kCost.bytes_per_frame);
  EXPECT_EQ(read.of({.codec = "int8", .norms = false}).bytes_per_frame, 0);
  EXPECT_THAT(table.to_text(), HasSubstr("\tint8:block=256 / residual\n"));
}

TEST(CostTable, TextThatIsNoneNamesTheLine) {
  const auto why = [](const std::string& text) {
    return CostTable::from_text(text).status().message();
  };
  const std::string head = "thinwire costs of codecs, version 3\nprocessor: x\n";
  EXPECT_THAT(why(""), HasSubstr("line 1"));
  EXPECT_THAT(why("thinwire costs of codecs, version 3\nmachine: x\n"), HasSubstr("line 2"));
  EXPECT_THAT(why(head + "1\t2\t3\tint8\n"), HasSubstr("line 3"));
  EXPECT_THAT(why(head + "1\t0\t1\t4\t5\t6\tint8 / none\n1\t0\t1\t4\t5\t-6\tint8 / none\n"),
              HasSubstr("line 4"));
  EXPECT_THAT(why(head + "1\t0\t1\t4\t5\tnan\tint8 / none\n"), HasSubstr("line 3"));
  // What no codec costs could add up to infinity.
  for (const char* row : {"1e308\t0\t1\t4\t5\t6", "1\t0\t1.1\t4\t5\t6", "1\t0\t1\t4\t5\t2e9"})
    EXPECT_THAT(why(head + row + "\tint8 / none\n"),
                AllOf(HasSubstr("line 3"), HasSubstr("from 0 to 1 s and to 1e+09 bytes")));
  EXPECT_THAT(why(head + "copies: 1e308\n"), HasSubstr("line 3"));
  EXPECT_THAT(why(head + "copies: fast\n"), HasSubstr("line 3"));
  EXPECT_THAT(why(head + "copies: -1e-9\n"), HasSubstr("line 3"));
  EXPECT_TRUE(CostTable::from_text(head));
}

// The usual file is a cache; one that was named is not overwritten.
TEST(CostFile, OfAnotherVersionIsMeasuredAgainIfItIsTheUsualOne) {
  const std::filesystem::path folder = ::testing::TempDir() + "cost_table_test";
  setenv("XDG_CACHE_HOME", folder.c_str(), 1);
  const std::string usual = usual_cost_file(), named = (folder / "named.txt").string();
  std::filesystem::create_directories(std::filesystem::path(usual).parent_path());
  for (const std::string& path : {usual, named})
    std::ofstream(path) << "thinwire costs of codecs, version 9\nof: something\n";
  EXPECT_EQ(read_costs(usual).value().size(), 0u);
  EXPECT_THAT(read_costs(named).status().message(), HasSubstr("line 1"));
  std::filesystem::remove_all(folder);
  unsetenv("XDG_CACHE_HOME");
}

TEST(CostTable, ACodecThatChangesOverTimeHasNoCost) {
  CostTable table;
  EXPECT_THROW(table.of({.codec = "fp32 | 10: int8"}), Error);
  EXPECT_THROW(table.of({.codec = "topp"}), Error);
}

// Sizes and states are exact; times depend on the machine.
TEST(MeasuredCodec, HasTheBytesOfItsPayloadsAndMemories) {
  const CodecCost fp16 = measure_codec({.codec = "fp16"});
  EXPECT_EQ(fp16.bytes_per_value, 2);
  EXPECT_EQ(fp16.bytes_per_frame, 0);
  EXPECT_EQ(fp16.memory_bytes_per_value, 0);
  EXPECT_GT(fp16.encode_seconds_per_value, 0);
  EXPECT_GT(fp16.decode_seconds_per_value, 0);

  const CodecCost topk = measure_codec({.codec = "topk:density=0.01"});
  EXPECT_NEAR(topk.bytes_per_value, 0.01 * (4 + 8.1 / 8),
              0.002);  // a position takes log2 of 1/0.01 + 1.4 bits
  EXPECT_GT(topk.bytes_per_frame, 0);
  EXPECT_EQ(topk.memory_bytes_per_value, 8);  // a residual, and its copy

  const CodecCost rank1 = measure_codec({.codec = "powersgd:rank=1"});
  EXPECT_NEAR(rank1.bytes_per_value, 4 * 2 / 1024.0, 1e-9);  // two factors of 1024 values
}

// Those of a run's threads stay as they were.
TEST(MeasuredCodec, LeavesTheNumberOfThreads) {
  set_codec_threads(3);
  measure_codec({.codec = "fp16"});
  EXPECT_EQ(codec_threads(), 3);
  set_codec_threads(1);
}

}  // namespace
}  // namespace thinwire
