// Puts the page together: style, Chart.js, script and the runs' figures go into one file.
// SPDX-License-Identifier: Apache-2.0
#include "cli/report/page.h"

#include <fmt/format.h>

#include <cstddef>
#include <cstdio>
#include <fstream>
#include <map>
#include <string_view>
#include <system_error>
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

// The folders' names. Where several have one name, each with as much of its path as tells it from
// the others.
std::vector<std::string> distinct_names(const std::vector<fs::path>& folders) {
  std::vector<std::string> names(folders.size());
  std::vector<fs::path> above(folders.size());  // what is left of the paths
  std::vector<size_t> longer(folders.size());   // those whose names get one folder more
  for (size_t i = 0; i < folders.size(); ++i) {
    above[i] = fs::absolute(folders[i] / "").lexically_normal().parent_path();
    longer[i] = i;
  }
  while (!longer.empty()) {
    for (const size_t i : longer) {
      names[i] = above[i].filename().string() + (names[i].empty() ? "" : "/") + names[i];
      above[i] = above[i].parent_path();
    }
    std::map<std::string_view, size_t> of_name;
    for (const std::string& name : names) ++of_name[name];
    std::erase_if(longer,
                  [&](size_t i) { return of_name[names[i]] == 1 || !above[i].has_filename(); });
  }
  return names;
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
  // Eight bytes each: the charts' numbers take about 20 MB at most, however many runs there are and
  // however many columns they have.
  constexpr size_t kNumbers = 2'500'000;
  const std::vector<std::string> names = distinct_names(runs);
  auto all = Json::array();
  for (const fs::path& run : runs) {
    all.push_back(read_run(run, kNumbers / runs.size()));
    all.back()["name"] = names[all.size() - 1];
    std::error_code no_link;
    if (const fs::path page = run / kInfluencePage; fs::exists(page, no_link))
      all.back()["influence"] =
          fs::relative(page, fs::absolute(path).parent_path(), no_link).generic_string();
  }
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
