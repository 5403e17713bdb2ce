// Lets all ranks fail together: one all-gather of error texts.
// SPDX-License-Identifier: Apache-2.0
#include <cstring>
#include <string>

#include "thinwire/group.h"

namespace thinwire {
namespace {

ErrorCode code_of(char byte) {
  const auto code = static_cast<uint8_t>(byte);
  if (code == 0 || code > static_cast<uint8_t>(ErrorCode::kUnsupported))
    throw Error(ErrorCode::kCorrupt, "together: a rank gave error code " + std::to_string(code) +
                                         ", which does not exist");
  return static_cast<ErrorCode>(code);
}

}  // namespace

void together(Group& group, const std::function<void()>& work) {
  std::string mine;  // the code, then the text; empty when all is well
  try {
    work();
  } catch (const Error& error) {
    mine = static_cast<char>(error.code()) + std::string(error.what());
  } catch (const std::exception& error) {
    mine = static_cast<char>(ErrorCode::kContract) + std::string(error.what());
  } catch (...) {  // if it left this function, the other ranks would wait until the deadline
    mine = static_cast<char>(ErrorCode::kContract) +
           std::string("together: something that is no std::exception was thrown");
  }
  for (const auto& bytes : group.all_gather_v(std::as_bytes(std::span(mine)))) {
    if (bytes.empty()) continue;
    std::string text(bytes.size(), '\0');
    std::memcpy(text.data(), bytes.data(), bytes.size());
    throw AgreedError(code_of(text[0]), text.substr(1));
  }
}

}  // namespace thinwire
