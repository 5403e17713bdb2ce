// The texts that every report is made of, compiled into the program.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

namespace thinwire::cli {

std::string_view
page_html() noexcept;  // with @style@, @chart@, @script@ and @data@ where these belong
std::string_view page_css() noexcept;
std::string_view page_js() noexcept;
std::string_view influence_html() noexcept;  // with @style@, @title@, @about@, @body@ and @version@
std::string_view chart_js() noexcept;        // Chart.js

}  // namespace thinwire::cli
