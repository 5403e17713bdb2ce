// What somebody meant who wrote a name that there is not.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace thinwire {

// The candidate that somebody who typed `typed` most likely meant; empty when none is close: more
// than two letters wrong, or more than a third of them.
std::string nearest(std::string_view typed, std::span<const std::string> candidates);

// "; did you mean 'epochs'?", or nothing.
std::string did_you_mean(std::string_view typed, std::span<const std::string> candidates);

// "known: batch, epochs; did you mean 'epochs'?": what an error about an unknown name ends with.
std::string known_names(std::string_view typed, std::span<const std::string> names);

}  // namespace thinwire
