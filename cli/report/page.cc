// Puts the page together: style, Chart.js, script and the runs' figures go into one file.
// SPDX-License-Identifier: Apache-2.0
#include "cli/report/page.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <map>
#include <string_view>
#include <utility>

#include "cli/report/assets.h"
#include "cli/report/filled_text.h"
#include "cli/report/reported_run.h"
#include "cli/terminal.h"
#include "thinwire/status.h"
#include "thinwire/version.h"

namespace thinwire::cli {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

// JSON that may stand inside a script element: no "</script>" and no comment can begin in it.
std::string inside_script(const Json& json) {
  const std::string text = json.dump(-1, ' ', false, Json::error_handler_t::replace);
  std::string safe;
  for (const char c : text) c == '<' ? safe += "\\u003c" : safe += c;
  return safe;
}

}  // namespace

std::string report_page(const std::string& title, const Json& runs) {
  const std::string data =
      inside_script({{"title", title}, {"version", THINWIRE_VERSION}, {"runs", runs}});
  return filled(
      page_html(),
      {{"style", page_css()}, {"chart", chart_js()}, {"script", page_js()}, {"data", data}});
}

void write_report(const std::vector<fs::path>& runs, const std::string& title,
                  const fs::path& path) {
  // About 20 MB at most, whatever the number of runs.
  const size_t groups = std::clamp<size_t>(20'000 / std::max<size_t>(runs.size(), 1), 60, 600);
  auto all = Json::array();
  std::map<std::string, size_t> of_name;
  for (const fs::path& run : runs) {
    all.push_back(read_run(run, groups));
    ++of_name[all.back()["name"].get<std::string>()];
  }
  for (size_t i = 0; i < runs.size(); ++i)
    if (const std::string name = all[i]["name"]; of_name[name] > 1)
      all[i]["name"] = folder_name(runs[i] / "..") + "/" + name;
  std::ofstream file(path, std::ios::binary);
  if (!(file << report_page(title, all) << std::flush))
    throw Error(ErrorCode::kIo, path.string() + ": cannot be written");
}

bool add_report(const fs::path& out, const std::string& title) try {
  write_report(runs_in(out), title, out / "report.html");
  return true;
} catch (const Error& error) {
  fmt::print(stderr, "{} no report was written: {}\n",
             styled(look_at(stderr), Style::kYellow, "thinwire:"), error.what());
  return false;
}

}  // namespace thinwire::cli
