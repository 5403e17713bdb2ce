// Lets all ranks fail together: one all-gather of error texts.
// SPDX-License-Identifier: Apache-2.0
#include <cstring>
#include <string>

#include "thinwire/group.h"

namespace thinwire {

void together(Group& group, const std::function<void()>& work) {
  std::string mine;  // the code, then the text; empty when all is well
  try {
    work();
  } catch (const Error& error) {
    mine = static_cast<char>(error.code()) + std::string(error.what());
  } catch (const std::exception& error) {
    mine = static_cast<char>(ErrorCode::kContract) + std::string(error.what());
  }
  for (const auto& bytes : group.all_gather_v(std::as_bytes(std::span(mine)))) {
    if (bytes.empty()) continue;
    std::string text(bytes.size(), '\0');
    std::memcpy(text.data(), bytes.data(), bytes.size());
    throw AgreedError(static_cast<ErrorCode>(text[0]), text.substr(1));
  }
}

}  // namespace thinwire
