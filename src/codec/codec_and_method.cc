// Parts a codec from its method.
// SPDX-License-Identifier: Apache-2.0
#include "thinwire/codec_and_method.h"

namespace thinwire {

CodecAndMethod codec_and_method(std::string_view text) {
  constexpr std::string_view kBetween = " @ ";
  const size_t at = text.find(kBetween);
  if (at == std::string_view::npos) return {.codec = std::string(text)};
  return {.codec = std::string(text.substr(0, at)),
          .method = std::string(text.substr(at + kBetween.size()))};
}

}  // namespace thinwire
