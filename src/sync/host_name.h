// The name of the machine that this rank is on.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <unistd.h>

#include <array>
#include <string>

namespace thinwire {

// `given` unless it is empty; then the system's name for this host.
inline std::string host_name(const std::string& given) {
  if (!given.empty()) return given;
  std::array<char, 256> name{};
  if (gethostname(name.data(), name.size() - 1) != 0) return "unknown";
  return name.data();
}

}  // namespace thinwire
