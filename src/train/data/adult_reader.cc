// Adult: lines of 15 values that are separated by commas and blanks; empty lines do not count. The
// last value is the label, in the test file with a full stop behind it.
// SPDX-License-Identifier: Apache-2.0
#include <torch/torch.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <map>
#include <string_view>
#include <utility>

#include "train/data/compressed_file.h"
#include "train/data/table_set.h"

namespace thinwire {
namespace {

struct Column {
  std::string_view name;
  bool number = false;
};

constexpr auto kColumns = std::to_array<Column>({{"age", true},
                                                 {"workclass"},
                                                 {"fnlwgt", true},
                                                 {"education"},
                                                 {"education-num", true},
                                                 {"marital-status"},
                                                 {"occupation"},
                                                 {"relationship"},
                                                 {"race"},
                                                 {"sex"},
                                                 {"capital-gain", true},
                                                 {"capital-loss", true},
                                                 {"hours-per-week", true},
                                                 {"native-country"}});
constexpr std::string_view kLabel = "income";
constexpr size_t kNumbers = 6, kCategories = kColumns.size() - kNumbers;

struct Line {
  size_t number = 0;  // in its file, from 1
  std::array<double, kNumbers> numbers{};
  std::array<std::string_view, kCategories> categories{};
  int64_t label = 0;
};

struct File {
  std::string path;
  std::vector<std::byte> bytes;  // that the lines point into
  std::vector<Line> lines;

  Error error(size_t line, const std::string& fault) const {
    return {ErrorCode::kCorrupt, path + ":" + std::to_string(line) + ": " + fault};
  }
};

std::string in_column(std::string_view column, std::string_view value) {
  return "column '" + std::string(column) + "': '" + std::string(value) + "' ";
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (true) {
    const size_t end = text.find(separator);
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

std::string_view trimmed(std::string_view text) {
  const auto blank = [](char c) { return c == ' ' || c == '\t' || c == '\r'; };
  while (!text.empty() && blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && blank(text.back())) text.remove_suffix(1);
  return text;
}

Line parse(const File& file, size_t number, std::string_view text) {
  const std::vector<std::string_view> values = split(text, ',');
  if (values.size() != kColumns.size() + 1)
    throw file.error(number, std::to_string(values.size()) + " columns and not " +
                                 std::to_string(kColumns.size() + 1));
  Line line{.number = number};
  size_t numbers = 0, categories = 0;
  for (size_t i = 0; i < kColumns.size(); ++i) {
    const std::string_view value = trimmed(values[i]);
    if (!kColumns[i].number) {
      if (value.empty()) throw file.error(number, in_column(kColumns[i].name, value) + "is empty");
      line.categories[categories++] = value;
      continue;
    }
    double& parsed = line.numbers[numbers++];
    const char* end = value.data() + value.size();
    const auto [stopped, problem] = std::from_chars(value.data(), end, parsed);
    if (problem != std::errc() || stopped != end || !std::isfinite(parsed))
      throw file.error(number, in_column(kColumns[i].name, value) + "is no number");
  }
  std::string_view label = trimmed(values.back());
  if (label.ends_with('.')) label.remove_suffix(1);
  if (label != "<=50K" && label != ">50K")
    throw file.error(number, in_column(kLabel, label) + "is neither <=50K nor >50K");
  line.label = label == ">50K" ? 1 : 0;
  return line;
}

File read_lines(const std::string& path) {
  File file{.path = path, .bytes = read_file(path), .lines = {}};
  const std::string_view text(reinterpret_cast<const char*>(file.bytes.data()), file.bytes.size());
  size_t number = 0;
  for (const std::string_view line : split(text, '\n')) {
    ++number;
    if (!trimmed(line).empty()) file.lines.push_back(parse(file, number, line));
  }
  if (file.lines.empty()) throw Error(ErrorCode::kCorrupt, path + ": holds no lines");
  return file;
}

// What the training file says of the columns.
struct Scales {
  std::array<double, kNumbers> mean{}, deviation{};
  std::array<std::map<std::string_view, int64_t>, kCategories> codes;
};

Scales scales_of(const File& train) {
  Scales scales;
  const auto count = static_cast<double>(train.lines.size());
  for (size_t i = 0; i < kNumbers; ++i) {
    for (const Line& line : train.lines) scales.mean[i] += line.numbers[i] / count;
    double square = 0;
    for (const Line& line : train.lines)
      square += (line.numbers[i] - scales.mean[i]) * (line.numbers[i] - scales.mean[i]) / count;
    scales.deviation[i] = square > 0 ? std::sqrt(square) : 1;
  }
  for (size_t i = 0; i < kCategories; ++i) {
    for (const Line& line : train.lines) scales.codes[i].emplace(line.categories[i], 0);
    int64_t next = 0;
    for (auto& [name, code] : scales.codes[i]) code = next++;
  }
  return scales;
}

std::string_view category_name(size_t index) {
  for (const Column& column : kColumns)
    if (!column.number && index-- == 0) return column.name;
  return {};
}

Rows to_rows(const File& file, const Scales& scales) {
  const auto count = static_cast<int64_t>(file.lines.size());
  Rows rows{.features = torch::empty({count, static_cast<int64_t>(kColumns.size())}),
            .labels = torch::empty({count}, torch::kLong)};
  float* feature = rows.features.mutable_data_ptr<float>();
  int64_t* label = rows.labels.mutable_data_ptr<int64_t>();
  for (const Line& line : file.lines) {
    for (size_t i = 0; i < kNumbers; ++i)
      *feature++ = static_cast<float>((line.numbers[i] - scales.mean[i]) / scales.deviation[i]);
    for (size_t i = 0; i < kCategories; ++i) {
      const auto found = scales.codes[i].find(line.categories[i]);
      if (found == scales.codes[i].end())
        throw file.error(line.number, in_column(category_name(i), line.categories[i]) +
                                          "is not in the training file");
      *feature++ = static_cast<float>(found->second);
    }
    *label++ = line.label;
  }
  return rows;
}

}  // namespace

TablePair read_adult(const std::string& train, const std::string& test) {
  const File first = read_lines(train), second = read_lines(test);
  const Scales scales = scales_of(first);
  TablePair pair{
      .train = to_rows(first, scales), .test = to_rows(second, scales), .categories = {}};
  for (const auto& codes : scales.codes)
    pair.categories.push_back(static_cast<int64_t>(codes.size()));
  return pair;
}

}  // namespace thinwire
