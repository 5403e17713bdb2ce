// A codec and the method that carries it, written together as "topk:density=0.01 @ gather".
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace thinwire {

// As ExchangeOptions::codec and ExchangeOptions::method have them.
struct CodecAndMethod {
  std::string codec;
  std::string method = "auto";
};

// Parts a text at " @ ". Without it the method is "auto". Neither name is checked.
CodecAndMethod codec_and_method(std::string_view text);

}  // namespace thinwire
