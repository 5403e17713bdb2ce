// Makes sure that ranks which must agree do, and says where they do not.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <string>
#include <string_view>

#include "thinwire/exchange.h"

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
std::string first_difference(std::string_view theirs, int rank, std::string_view root) {
  for (int number = 1;; ++number) {
    const bool their_end = theirs.empty();
    const bool root_end = root.empty();
    const std::string_view their_line = next_line(theirs);
    const std::string_view root_line = next_line(root);
    if (their_line == root_line && their_end == root_end && !(their_end && root_end)) continue;
    return "line " + std::to_string(number) + " is " + quoted(their_line, their_end) + " on rank " +
           std::to_string(rank) + ", " + quoted(root_line, root_end) + " on rank 0";
  }
}

}  // namespace

// Every rank gets every text, so that all of them come to the same conclusion without another
// round.
void require_agreement(Group& group, std::string_view what, std::string_view text) {
  const auto texts = group.all_gather_v(std::as_bytes(std::span(text)));
  const std::string_view root = as_text(texts.front());
  for (int rank = 1; rank < group.size(); ++rank) {
    const std::string_view theirs = as_text(texts[static_cast<size_t>(rank)]);
    if (theirs != root)
      throw AgreedError(ErrorCode::kMismatch, std::string(what) + ": ranks do not agree: " +
                                                  first_difference(theirs, rank, root));
  }
}

}  // namespace thinwire
