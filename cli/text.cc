// Formats numbers and times.
// SPDX-License-Identifier: Apache-2.0
#include "cli/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace thinwire::cli {
namespace {

// Three significant digits, never in scientific form.
std::string three_digits(double number) {
  if (number < 9.995) return fmt::format("{:.2f}", number);
  if (number < 99.95) return fmt::format("{:.1f}", number);
  return fmt::format("{:.0f}", number);
}

// Bytes of the UTF-8 character at the beginning of `text`; 0 where there is none.
size_t character_size(std::string_view text) {
  const auto first = static_cast<unsigned char>(text[0]);
  const size_t size = first < 0x80                    ? 1
                      : first >= 0xc2 && first < 0xe0 ? 2
                      : first >= 0xe0 && first < 0xf0 ? 3
                      : first >= 0xf0 && first < 0xf5 ? 4
                                                      : 0;
  if (size > text.size()) return 0;
  for (size_t i = 1; i < size; ++i)
    if ((text[i] & 0xc0) != 0x80) return 0;
  return size;
}

}  // namespace

std::string with_thousands(uint64_t number) {
  std::string text = std::to_string(number);
  for (size_t end = text.size(); end > 3; end -= 3) text.insert(end - 3, ",");
  return text;
}

std::string short_number(double number) {
  std::string text = fmt::format("{:.2f}", number);
  text.erase(text.find_last_not_of('0') + 1);
  if (text.back() == '.') text.pop_back();
  return text;
}

std::string human_bytes(double bytes) {
  static constexpr std::string_view kUnits[] = {"kB", "MB", "GB", "TB", "PB"};
  if (bytes < 999.5) return fmt::format("{:.0f} B", bytes);
  size_t unit = 0;
  for (bytes /= 1000; bytes >= 999.5 && unit + 1 < std::size(kUnits); ++unit) bytes /= 1000;
  return three_digits(bytes) + " " + std::string(kUnits[unit]);
}

std::string duration(double seconds) {
  if (!(seconds >= 0)) return "?";
  if (seconds < 9.95) return fmt::format("{:.1f} s", seconds);
  const auto whole = static_cast<uint64_t>(std::llround(seconds));
  if (whole < 3600) return fmt::format("{}:{:02}", whole / 60, whole % 60);
  return fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
}

std::string percent(double fraction) { return fmt::format("{:.2f}%", 100 * fraction); }

std::string ratio(double factor) { return three_digits(factor) + "x"; }

std::string repeat(std::string_view text, size_t times) {
  std::string all;
  while (times-- > 0) all += text;
  return all;
}

std::string join(const std::vector<std::string>& items, std::string_view separator) {
  return fmt::format("{}", fmt::join(items, separator));
}

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  while (true) {
    const size_t end = text.find(separator);
    parts.emplace_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

std::vector<std::string> split_codecs(std::string_view list) {
  std::vector<std::string> codecs;
  size_t begin = 0;
  int depth = 0;
  for (size_t i = 0; i <= list.size(); ++i) {
    const char c = i < list.size() ? list[i] : ';';
    depth += c == '(' ? 1 : c == ')' ? -1 : 0;
    if (c != ';' || (depth > 0 && i < list.size())) continue;
    if (const std::string_view part = trim(list.substr(begin, i - begin)); !part.empty())
      codecs.emplace_back(part);
    begin = i + 1;
  }
  return codecs;
}

std::string_view trim(std::string_view text) {
  static constexpr std::string_view kBlank = " \t\r\n";
  const size_t begin = text.find_first_not_of(kBlank);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlank) - begin + 1);
}

std::string_view first_line(std::string_view text) { return text.substr(0, text.find('\n')); }

std::string printable(std::string_view text) {
  std::string shown;
  while (!text.empty()) {
    const size_t size = character_size(text);
    const auto first = static_cast<unsigned char>(text[0]);
    const bool control =
        first < 0x20 || first == 0x7f ||
        (size == 2 && first == 0xc2 && static_cast<unsigned char>(text[1]) < 0xa0);  // C1
    if (size == 0 || control)
      shown += '?';
    else
      shown += text.substr(0, size);
    text.remove_prefix(std::max<size_t>(size, 1));
  }
  return shown;
}

size_t columns(std::string_view text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xc0) != 0x80; }));
}

}  // namespace thinwire::cli
