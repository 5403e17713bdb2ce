// Compares the texts of all ranks, and says where they differ.
// SPDX-License-Identifier: Apache-2.0
#include "thinwire/agreement.h"

#include <span>
#include <string>

#include "core/odd_one_out.h"

namespace thinwire {
namespace {

std::string_view as_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

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

// "line 3 is 'seed 1' on rank 2, 'seed 0' on rank 0". REQUIRES: the texts differ.
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

}  // namespace

// Every rank gets every text, so that all of them come to the same conclusion without another
// round.
void require_agreement(Group& group, std::string_view what, std::string_view text) {
  const auto texts = group.all_gather_v(std::as_bytes(std::span(text)));
  const auto alike = [&](size_t a, size_t b) { return texts[a] == texts[b]; };
  const size_t odd = odd_one_out(texts.size(), alike);
  if (odd == texts.size()) return;
  size_t usual = 0;
  while (alike(usual, odd)) ++usual;
  throw AgreedError(ErrorCode::kMismatch,
                    std::string(what) + ": ranks do not agree: " +
                        first_difference(as_text(texts[odd]), odd, as_text(texts[usual]), usual));
}

}  // namespace thinwire
