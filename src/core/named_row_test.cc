// Tests of look-ups in tables of rows, of pointers and of names, and of their errors.
// SPDX-License-Identifier: Apache-2.0
#include "core/named_row.h"

#include <gtest/gtest.h>

#include <array>

namespace thinwire {
namespace {

struct Row {
  std::string_view name;
  std::vector<OptionInfo> options = {};
};
struct RowWithInfo {
  Row info;
  int number = 0;
};

const std::vector<Row> kRows = {
    {.name = "plain"},
    {.name = "fine", .options = {{.name = "size", .type = OptionType::kInteger, .fallback = "3"}}}};

template <typename T>
std::string message(const Result<T>& failed) {
  EXPECT_FALSE(failed);
  return failed.status().message();
}

TEST(NamedRow, IsFoundInTablesOfRowsPointersAndNames) {
  EXPECT_EQ(find_row(kRows, "shape", "fine").value(), &kRows[1]);
  const std::vector<RowWithInfo> with_info = {{.info = kRows[0], .number = 1}};
  EXPECT_EQ(find_row(with_info, "shape", "plain").value()->number, 1);
  const std::array pointers = {&kRows[1], &kRows[0]};
  EXPECT_EQ(find_row(pointers, "shape", "plain").value(), &kRows[0]);
  constexpr std::array<std::string_view, 2> kNames = {"left", "right"};
  EXPECT_EQ(find_row(kNames, "side", "right").value(), &kNames[1]);
}

TEST(NamedRow, AnUnknownNameIsToldTheKnownOnes) {
  EXPECT_EQ(message(find_row(kRows, "shape", "fien")),
            "unknown shape 'fien'; known: plain, fine; did you mean 'fine'?");
  EXPECT_EQ(message(find_row(kRows, "shape", "fin")),
            "unknown shape 'fin'; known: plain, fine; did you mean 'fine'?");
  EXPECT_EQ(message(find_row(kRows, "shape", "finer")),
            "unknown shape 'finer'; known: plain, fine; did you mean 'fine'?");
  EXPECT_EQ(message(find_row(kRows, "shape", "x", "here: ")),
            "here: unknown shape 'x'; known: plain, fine");
  EXPECT_EQ(message(find_row(std::vector<Row>{}, "shape", "x")), "unknown shape 'x'; it has none");
  EXPECT_EQ(find_row(kRows, "shape", "x").status().code(), ErrorCode::kUnknownName);
}

TEST(NamedRow, OptionsAreCheckedAgainstTheRow) {
  const auto fine = find_named_row(kRows, "shape", "fine:size=7").value();
  EXPECT_EQ(fine.row, &kRows[1]);
  EXPECT_EQ(fine.options.integer("size"), 7);
  EXPECT_EQ(fine.canonical(), "fine:size=7");
  EXPECT_EQ(find_named_row(kRows, "shape", "fine").value().canonical(), "fine:size=3");
  EXPECT_EQ(find_named_row(kRows, "shape", "plain").value().canonical(), "plain");
  EXPECT_EQ(message(find_named_row(kRows, "shape", "plain:size=7")),
            "shape 'plain': unknown option 'size'; it has none");
  EXPECT_EQ(message(find_named_row(kRows, "shape", "fine:size=x")),
            "shape 'fine': option 'size' is 'x', but must be a whole number");
  EXPECT_EQ(message(find_named_row(kRows, "shape", "fan")),
            "unknown shape 'fan'; known: plain, fine");
  EXPECT_EQ(message(find_named_row(kRows, "shape", "")),
            "shape '': the name is missing; write name or name:key=value,key=value");
}

TEST(NamedRow, OptionsMayLieBesideTheInfo) {
  struct Entry {
    struct {
      std::string_view name;
    } info;
    std::vector<OptionInfo> options;
  };
  const std::vector<Entry> entries = {{.info = {"fine"}, .options = kRows[1].options}};
  EXPECT_EQ(find_named_row(entries, "shape", "fine:size=5").value().options.integer("size"), 5);
}

}  // namespace
}  // namespace thinwire
