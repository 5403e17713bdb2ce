// to_json: one line of JSON for one report of a round.
// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <cstdio>

#include "core/number_text.h"
#include "thinwire/synchroniser.h"

namespace thinwire {
namespace {

// JSON has no infinity.
std::string number(double value) { return std::isfinite(value) ? shortest(value) : "null"; }

template <typename Values, typename Text>
std::string list(const Values& values, const Text& text) {
  std::string all;
  for (const auto& value : values) all += (all.empty() ? "" : ",") + text(value);
  return "[" + all + "]";
}

std::string quoted(const std::string& text) {
  std::string safe = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') safe += '\\';
    if (static_cast<unsigned char>(c) < 0x20) {
      char code[8];
      std::snprintf(code, sizeof code, "\\u%04x", static_cast<unsigned>(c));
      safe += code;
    } else {
      safe += c;
    }
  }
  return safe + '"';
}

}  // namespace

std::string to_json(const RoundReport& report) {
  const auto integer = [](auto value) { return std::to_string(value); };
  std::string line = "{\"round\":" + integer(report.round) + ",\"step\":" + integer(report.step) +
                     ",\"global\":" + (report.global ? "true" : "false");
  if (report.fragment >= 0)
    line += ",\"fragment\":" + integer(report.fragment) + ",\"begun\":" + integer(report.begun);
  if (!report.ranks.empty()) line += ",\"ranks\":" + list(report.ranks, integer);
  if (!report.losses.empty()) line += ",\"losses\":" + list(report.losses, number);
  if (!report.leaders.empty()) line += ",\"leaders\":" + list(report.leaders, integer);
  if (!report.leaders.empty() && report.global) line += ",\"leader\":" + integer(report.leader);
  line += ",\"values\":" + integer(report.values) +
          ",\"payload_bytes\":" + integer(report.payload_bytes) +
          ",\"sent_bytes\":" + integer(report.sent_bytes) +
          ",\"received_bytes\":" + integer(report.received_bytes) +
          ",\"between_bytes\":" + integer(report.between_bytes) +
          ",\"seconds\":" + number(report.seconds);
  if (report.skipped)
    line += ",\"skipped\":" + quoted(std::string(to_string(report.fault.code))) +
            ",\"culprit\":" + integer(report.fault.rank) +
            ",\"where\":" + quoted(report.fault.stream);
  return line + "}";
}

}  // namespace thinwire
