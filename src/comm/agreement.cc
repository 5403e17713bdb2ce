// Compares the texts of all ranks, and says where they differ.
// SPDX-License-Identifier: Apache-2.0
#include "thinwire/agreement.h"

#include <span>
#include <string>

#include "core/first_difference.h"
#include "core/odd_one_out.h"

namespace thinwire {
namespace {

std::string_view as_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
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
