// Replaces names and signs in texts.
// SPDX-License-Identifier: Apache-2.0
#include "cli/report/filled_text.h"

namespace thinwire::cli {

std::string filled(std::string_view text,
                   const std::map<std::string_view, std::string_view>& parts) {
  std::string page;
  while (!text.empty()) {
    const size_t at = text.find('@');
    page += text.substr(0, at);
    if (at == std::string_view::npos) break;
    const size_t end = text.find('@', at + 1);
    const auto found =
        end == std::string_view::npos ? parts.end() : parts.find(text.substr(at + 1, end - at - 1));
    page += found == parts.end() ? text.substr(at, 1) : found->second;
    text.remove_prefix(found == parts.end() ? at + 1 : end + 1);
  }
  return page;
}

std::string inside_html(std::string_view text) {
  std::string safe;
  for (const char c : text) {
    if (c == '&') {
      safe += "&amp;";
    } else if (c == '<') {
      safe += "&lt;";
    } else if (c == '"') {
      safe += "&quot;";
    } else {
      safe += c;
    }
  }
  return safe;
}

}  // namespace thinwire::cli
