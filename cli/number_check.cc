// CLI11's own checks print limits in all their digits, and let its conversion cut off a number that
// is too large.
// SPDX-License-Identifier: Apache-2.0
#include "cli/number_check.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <string>
#include <system_error>
#include <utility>

namespace thinwire::cli {
namespace {

// A blank may stand in front, as behind the comma of "2, 4"; the conversion skips it, too.
std::string without_blanks(const std::string& text) {
  const size_t begin = text.find_first_not_of(" \t");
  return begin == text.npos ? std::string() : text.substr(begin);
}

bool is_digits(const std::string& text) {
  return !text.empty() && text.find_first_not_of("0123456789") == text.npos;
}

// The description of a validator would be printed in the help of its option.
template <typename T, typename Fits>
CLI::Validator validator(std::string what, const Fits& fits) {
  const auto complaint = [what = std::move(what), fits](const std::string& given) {
    const std::string text = without_blanks(given);
    T value = 0;
    const char* end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, value);
    const bool read = error == std::errc() && stop == end;
    return read && fits(value) ? std::string() : fmt::format("'{}' is not {}", given, what);
  };
  return CLI::Validator(complaint, "");
}

}  // namespace

CLI::Validator whole_number(uint64_t least, uint64_t most) {
  if (most < kLargestCount)
    return validator<uint64_t>(fmt::format("a whole number from {} to {}", least, most),
                               [=](uint64_t value) { return value >= least && value <= most; });
  const auto complaint = [=](const std::string& given) {
    const std::string text = without_blanks(given);
    uint64_t value = 0;
    const auto read = std::from_chars(text.data(), text.data() + text.size(), value);
    if (!is_digits(text) || (read.ec == std::errc() && value < least))
      return fmt::format("'{}' is not a whole number of at least {}", given, least);
    const bool fits = read.ec == std::errc() && value <= most;
    return fits ? std::string() : fmt::format("'{}' is too large: {} is the most", given, most);
  };
  return CLI::Validator(complaint, "");
}

CLI::Validator number_between(double least, double most) {
  return validator<double>(fmt::format("a number from {} to {}", least, most),
                           [=](double value) { return value >= least && value <= most; });
}

CLI::Validator positive_number() {
  return validator<double>("a number above 0",
                           [](double value) { return std::isfinite(value) && value > 0; });
}

}  // namespace thinwire::cli
