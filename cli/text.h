// Formats numbers and times for people.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "thinwire/near_miss.h"  // IWYU pragma: export

namespace thinwire::cli {

std::string with_thousands(uint64_t number);  // 1234567 -> "1,234,567"
std::string short_number(double number);      // two decimals at most: "3", "0.04", "2.5"
std::string human_bytes(double bytes);        // 1234567 -> "1.23 MB"; powers of 1000
std::string duration(double seconds);         // "0.4 s" below 10 s, then "0:42", "1:02:03"
std::string percent(double fraction);         // 0.0912 -> "9.12%"
std::string ratio(double factor);             // three digits and a cross: "97.3x", "1.00x", "512x"

std::string repeat(std::string_view text, size_t times);
std::string join(const std::vector<std::string>& items, std::string_view separator);
std::vector<std::string> split(std::string_view text, char separator);
// What stands between semicolons, trimmed, without what is empty. Semicolons in brackets divide
// nothing: "fp32; topk:density=warmup(0.01;1)" has two parts.
std::vector<std::string> split_codecs(std::string_view list);
std::string_view trim(std::string_view text);
std::string_view first_line(std::string_view text);

// `text` as a terminal may show it: control characters, which could move the cursor or worse, and
// bytes that are no UTF-8 become question marks.
std::string printable(std::string_view text);

// Columns that `text` (UTF-8, one column per code point) takes on a terminal.
size_t columns(std::string_view text);

}  // namespace thinwire::cli
