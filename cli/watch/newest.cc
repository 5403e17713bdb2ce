// Reads what lines say besides times and losses, and the files of ranks.
// SPDX-License-Identifier: Apache-2.0
#include "cli/watch/newest.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <fstream>
#include <system_error>

#include "cli/json_value.h"
#include "cli/text.h"

namespace thinwire::cli {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

double codec_ratio(const Json& way) {
  const double sent = number(way, "payload_bytes");
  return sent > 0 ? 4 * number(way, "values") / sent : 0;
}

}  // namespace

void Newest::add(uint64_t step, const Json& line) {
  add_codecs(step, line);
  add_round(step, line);
  add_left_out(line);
  add_pipeline(line);
  lost += list(line, "lost").size();
  joined += list(line, "joined").size();
}

void Newest::add_codecs(uint64_t step, const Json& line) {
  const Json& by_codec = object(line, "codecs");
  if (by_codec.empty()) return;
  codecs.tensors.clear();
  for (const auto& [codec, names] : by_codec.items())
    codecs.tensors.emplace_back(printable(codec), names.size());
  std::stable_sort(codecs.tensors.begin(), codecs.tensors.end(),
                   [](const auto& left, const auto& right) { return left.second > right.second; });
  codecs.step = step;
  codecs.why.clear();
  for (const Json& decision : list(line, "decisions"))
    codecs.why = printable(text(decision, "why"));
  ++codecs.times;
}

void Newest::add_round(uint64_t step, const Json& line) {
  const Json& from = object(line, "round");
  if (from.empty()) return;
  const auto global = from.find("global");
  round = Round{.number = integer(from, "round", 0),
                .step = step,
                .global = global == from.end() || *global != false,
                .leader = std::nullopt,
                .ranks = list(from, "ranks").size(),
                .seconds = number(from, "seconds"),
                .sent_bytes = number(from, "sent_bytes"),
                .skipped = printable(text(from, "skipped"))};
  if (from.contains("leader")) round->leader = integer(from, "leader", -1);
  skipped_rounds += !round->skipped.empty();
}

void Newest::add_left_out(const Json& line) {
  const auto count = [&](int64_t rank, std::string why) {
    Absence& one = left_out[rank];
    ++one.steps;
    one.why = std::move(why);
  };
  for (const Json& one : list(line, "left_out"))
    count(integer(one, "rank", -1), printable(text(one, "why")));
  for (const Json& rank : list(line, "unchosen"))
    if (rank.is_number_integer()) count(rank.get<int64_t>(), "the rule's choice");
}

void Newest::add_pipeline(const Json& line) {
  const Json& pipeline = object(line, "pipeline");
  if (pipeline.empty()) return;
  idle_share = number(pipeline, "idle_share");
  boundaries.clear();
  for (const Json& boundary : list(pipeline, "boundaries"))
    boundaries.push_back({.behind = printable(text(boundary, "behind", "?")),
                          .forward = codec_ratio(object(boundary, "forward")),
                          .backward = codec_ratio(object(boundary, "backward"))});
}

std::vector<RankFigures> rank_figures(const fs::path& folder) {
  std::vector<RankFigures> all;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder / "ranks", error)) {
    if (entry.path().extension() != ".json") continue;
    std::ifstream file(entry.path());
    const Json json = Json::parse(file, nullptr, /*allow_exceptions=*/false);
    const std::optional<uint64_t> step = step_of(json);
    if (!step) continue;
    const Json& times = object(json, "times");
    const auto written = fs::last_write_time(entry.path(), error);
    const std::chrono::duration<double> since = fs::file_time_type::clock::now() - written;
    all.push_back({.rank = integer(json, "rank", -1),
                   .step = *step,
                   .loss = number(json, "loss", NAN),
                   .fetch = number(times, "fetch"),
                   .compute = number(times, "compute"),
                   .update = number(times, "update"),
                   .wait = number(times, "wait"),
                   .silent_seconds = error ? 0 : since.count()});
  }
  std::sort(all.begin(), all.end(), [](const RankFigures& left, const RankFigures& right) {
    return left.rank < right.rank;
  });
  return all;
}

}  // namespace thinwire::cli
