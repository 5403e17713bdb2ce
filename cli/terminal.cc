// Detects terminals by the usual environment variables.
// SPDX-License-Identifier: Apache-2.0
#include "cli/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>

#include "cli/mpirun.h"

namespace thinwire::cli {
namespace {

std::string_view environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string_view() : std::string_view(value);
}

// The first of the three that is set decides, as in setlocale.
bool utf8_locale() {
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    const std::string_view value = environment(name);
    if (!value.empty()) return names_utf8(value);
  }
  return false;
}

}  // namespace

bool names_utf8(std::string_view locale) {
  std::string lower;
  for (const char c : locale) lower += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return lower.find("utf-8") != lower.npos || lower.find("utf8") != lower.npos;
}

Terminal look_at(std::FILE* file) {
  Terminal terminal;
  const int descriptor = fileno(file);
  if (isatty(descriptor) == 0 || environment("TERM") == "dumb" || mpirun_world()) return terminal;
  terminal.live = true;
  terminal.colour = environment("NO_COLOR").empty();
  terminal.unicode = utf8_locale();
  winsize size{};
  if (ioctl(descriptor, TIOCGWINSZ, &size) != 0) return terminal;
  if (size.ws_col > 0) terminal.width = size.ws_col;
  if (size.ws_row > 0) terminal.height = size.ws_row;
  return terminal;
}

std::string styled(const Terminal& terminal, Style style, std::string_view text) {
  static constexpr std::string_view kCodes[] = {"", "1", "2", "32", "33", "31"};
  const std::string_view code = kCodes[static_cast<int>(style)];
  if (!terminal.colour || code.empty()) return std::string(text);
  return "\033[" + std::string(code) + "m" + std::string(text) + "\033[0m";
}

std::string cut(std::string_view line, size_t width) {
  std::string shown;
  size_t columns = 0;
  bool in_style = false;
  for (const char c : line) {
    in_style |= c == '\033';
    if (!in_style) columns += (c & 0xc0) != 0x80;  // the first byte of a character
    if (in_style || columns <= width) shown += c;
    in_style &= c != 'm';
  }
  return shown;
}

}  // namespace thinwire::cli
