// The keys of a store under which an exchange keeps what it remembers of a stream.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <string>
#include <string_view>

namespace thinwire {

inline std::string feedback_key(const std::string& stream) { return stream + "/feedback"; }
inline std::string encoder_key(const std::string& stream) { return stream + "/encoder"; }
inline std::string owner_key(const std::string& stream) { return stream + "/owner"; }

// Of a section with Grouping::kGlobal, whose first stream it is.
inline std::string threshold_key(const std::string& stream) { return stream + "/threshold"; }

// Of a stream whose codec has an accordion.
inline std::string regime_key(const std::string& stream) { return stream + "/regime"; }

// Whether an array of a saved store is an accordion's; its name is the key, a slash and a name of
// its own.
inline bool is_regime_array(std::string_view name) {
  return name.substr(0, name.rfind('/')).ends_with("/regime");
}

// Of a stream whose rule remembers something from step to step.
inline std::string remembered_key(const std::string& stream) { return stream + "/kept"; }

// All of them, whether they are in use or not.
inline std::array<std::string, 6> stream_keys(const std::string& stream) {
  return {feedback_key(stream),  encoder_key(stream), owner_key(stream),
          threshold_key(stream), regime_key(stream),  remembered_key(stream)};
}

}  // namespace thinwire
