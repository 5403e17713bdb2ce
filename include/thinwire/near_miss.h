// Suggestions for misspelt names.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace thinwire {

// The candidate that is most similar to `typed`. Empty if none is close: more than two letters are
// wrong, or more than a third of them.
std::string nearest(std::string_view typed, std::span<const std::string> candidates);

// The text "; did you mean 'epochs'?", or nothing.
std::string did_you_mean(std::string_view typed, std::span<const std::string> candidates);

// The text "known: batch, epochs; did you mean 'epochs'?", with which an error about an unknown
// name ends.
std::string known_names(std::string_view typed, std::span<const std::string> names);

}  // namespace thinwire
