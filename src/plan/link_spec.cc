// LinkSpec: reads "1gbit,20ms", and the time that bytes take.
// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <charconv>
#include <cmath>
#include <string>

#include "core/number_text.h"
#include "thinwire/step_plan.h"

namespace thinwire {
namespace {

struct Unit {
  std::string_view name;
  double factor;
};
constexpr std::array kRates = {Unit{"kbit", 1e3}, Unit{"mbit", 1e6}, Unit{"gbit", 1e9}};
constexpr std::array kTimes = {Unit{"us", 1e-6}, Unit{"ms", 1e-3}, Unit{"s", 1}};

// A positive number with one of the units behind it; below 0: it is none.
template <size_t kUnits>
double read_quantity(std::string_view text, const std::array<Unit, kUnits>& units) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const std::string_view unit = text.substr(static_cast<size_t>(end - text.data()));
  for (const Unit& known : units)
    if (error == std::errc() && unit == known.name && number >= 0 && number < 1e9)
      return number * known.factor;
  return -1;
}

// The largest unit in which the number is at least 1.
template <size_t kUnits>
std::string in_unit(double number, const std::array<Unit, kUnits>& units,
                    const std::array<std::string_view, kUnits>& names) {
  size_t unit = 0;
  while (unit + 1 < kUnits && number >= units[unit + 1].factor) ++unit;
  // Divisions of decimal numbers end in ...03: what differs by rounding alone is told as the
  // shorter number.
  const double exact = number / units[unit].factor, rounded = std::round(1e6 * exact) / 1e6;
  return shortest(std::abs(rounded - exact) < 1e-14 * exact ? rounded : exact) + " " +
         std::string(names[unit]);
}

}  // namespace

double LinkSpec::seconds_for(double bytes) const noexcept {
  constexpr double kWithHeaders = 1.048;
  return bits_per_second > 0 ? 8 * bytes * kWithHeaders / bits_per_second : 0;
}

Result<LinkSpec> parse_link(std::string_view text) {
  const size_t comma = text.find(',');
  const std::string_view rate = text.substr(0, comma);
  LinkSpec link;
  const double bits = rate == "none" ? 0 : read_quantity(rate, kRates);
  if (bits < 0 || (bits == 0 && rate != "none"))
    return Status::fail(ErrorCode::kBadOption,
                        "link '" + std::string(text) + "': '" + std::string(rate) +
                            "' is no rate (100mbit, 1gbit, 2.5gbit; kbit, mbit, gbit; or none)");
  link.bits_per_second = bits;
  if (comma == std::string_view::npos) return link;
  const std::string_view latency = text.substr(comma + 1);
  link.latency_seconds = read_quantity(latency, kTimes);
  if (link.latency_seconds < 0)
    return Status::fail(ErrorCode::kBadOption, "link '" + std::string(text) + "': '" +
                                                   std::string(latency) +
                                                   "' is no latency (50us, 20ms, 0.1s)");
  return link;
}

std::string to_string(const LinkSpec& link) {
  std::string text = link.bits_per_second == 0
                         ? "no limit"
                         : in_unit<3>(link.bits_per_second, kRates, {"kbit/s", "Mbit/s", "Gbit/s"});
  if (link.latency_seconds > 0)
    text += ", " + in_unit<3>(link.latency_seconds, kTimes, {"us", "ms", "s"});
  return text;
}

}  // namespace thinwire
