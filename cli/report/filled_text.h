// Texts with places for other texts, of which pages are made.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>
#include <string_view>

namespace thinwire::cli {

// `text` with each "@name@" replaced. What is put in is not looked at again.
std::string filled(std::string_view text,
                   const std::map<std::string_view, std::string_view>& parts);

// `text` as it may stand in an element or in a quoted attribute of an HTML page.
std::string inside_html(std::string_view text);

}  // namespace thinwire::cli
