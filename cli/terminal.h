// What the output's terminal can show.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdio>
#include <string>
#include <string_view>

namespace thinwire::cli {

struct Terminal {
  bool live = false;     // lines can be redrawn
  bool colour = false;   // only with live, and not when NO_COLOR is set
  bool unicode = false;  // blocks and dots besides ASCII
  int width = 80;        // columns; read again by look_at, as windows change
  int height = 24;       // lines
};

// Looks at the file and at TERM, NO_COLOR, LC_ALL, LC_CTYPE and LANG. Under mpirun nothing is live:
// it hands its ranks a pseudo-terminal even when its own output goes to a file.
Terminal look_at(std::FILE* file);

// Whether a locale's characters are UTF-8, in any of the ways to write that: "de_DE.utf-8".
bool names_utf8(std::string_view locale);

enum class Style { kPlain, kBold, kFaint, kGreen, kYellow, kRed };

// `text` in that style where the terminal has colours.
std::string styled(const Terminal& terminal, Style style, std::string_view text);

// The first `width` columns of a line with styles. Styles end where they would have ended.
std::string cut(std::string_view line, size_t width);

}  // namespace thinwire::cli
