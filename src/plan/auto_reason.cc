// Texts of codec "auto": times and rates of three digits.
// SPDX-License-Identifier: Apache-2.0
#include "plan/auto_reason.h"

#include <cstdio>

namespace thinwire {
namespace {

std::string in_units(double number, double unit, const char* small, const char* large) {
  char text[48];
  const bool is_large = number >= 1000 * unit;
  std::snprintf(text, sizeof text, "%.3g %s", number / (is_large ? 1000 * unit : unit),
                is_large ? large : small);
  return text;
}

}  // namespace

std::string time_text(double seconds) { return in_units(seconds, 1e-3, "ms", "s"); }

std::string link_text(const LinkSpec& link) {
  const std::string rate = link.bits_per_second == 0
                               ? "no limit"
                               : in_units(link.bits_per_second, 1e6, "Mbit/s", "Gbit/s");
  return rate + ", " + time_text(link.latency_seconds);
}

std::string reason_text(const std::string& name, double seconds, double dense, const LinkSpec& link,
                        double compute_seconds) {
  char times[32];
  std::snprintf(times, sizeof times, "%.2f", dense / seconds);
  std::string text = name + ": expected " + time_text(seconds) + " per step, " + times +
                     "x as fast as fp32; link " + link_text(link);
  if (compute_seconds > 0) text += "; computation " + time_text(compute_seconds);
  return text;
}

}  // namespace thinwire
