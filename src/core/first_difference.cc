// Finds the first line in which two texts differ.
// SPDX-License-Identifier: Apache-2.0
#include "core/first_difference.h"

namespace thinwire {
namespace {

// Takes the first line off `text`.
std::string_view next_line(std::string_view& text) {
  const size_t end = text.find('\n');
  const std::string_view line = text.substr(0, end);
  text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  return line;
}

std::string quoted(std::string_view line, bool past_end) {
  return past_end ? "nothing more" : "'" + std::string(line) + "'";
}

}  // namespace

std::string first_difference(std::string_view odd, size_t odd_rank, std::string_view usual,
                             size_t usual_rank) {
  for (int number = 1;; ++number) {
    const bool odd_end = odd.empty();
    const bool usual_end = usual.empty();
    const std::string_view odd_line = next_line(odd);
    const std::string_view usual_line = next_line(usual);
    if (odd_line == usual_line && odd_end == usual_end && !(odd_end && usual_end)) continue;
    return "line " + std::to_string(number) + " is " + quoted(odd_line, odd_end) + " on rank " +
           std::to_string(odd_rank) + ", " + quoted(usual_line, usual_end) + " on rank " +
           std::to_string(usual_rank);
  }
}

}  // namespace thinwire
