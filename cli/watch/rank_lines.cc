// Formats what the newest lines say, and each rank's own figures.
// SPDX-License-Identifier: Apache-2.0
#include "cli/watch/rank_lines.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "cli/text.h"
#include "cli/watch/newest.h"

namespace thinwire::cli {
namespace {

constexpr size_t kRanksShown = 8;
constexpr size_t kBarWidth = 20;
constexpr double kRankSilent = 60;  // seconds that are mentioned; a rank writes once a second or so

std::string tensors(size_t count) {
  return count == 1 ? "1 tensor" : fmt::format("{} tensors", count);
}

// As many of the fields as fit, one at least, and how many others there are.
std::string counted(std::vector<std::string> fields, size_t width) {
  const size_t all = fields.size();
  while (true) {
    const size_t shown = fields.size();
    std::string line = join(fields, "  ");
    if (shown < all) line += fmt::format("  and {} more", all - shown);
    if (shown == 1 || columns(line) <= width) return line;
    fields.pop_back();
  }
}

// Of a run of one codec that its recipe names, the header has it.
std::string codecs_line(const FollowedRun& run, size_t width) {
  const Newest::Codecs& codecs = run.newest().codecs;
  const bool chosen = run.codec().starts_with("auto") || codecs.times > 1;
  if (codecs.tensors.empty() || (!chosen && codecs.tensors.size() == 1)) return "";
  std::vector<std::string> fields;
  for (const auto& [codec, count] : codecs.tensors)
    fields.push_back(fmt::format("{} ({})", codec, tensors(count)));
  return "  codecs " + counted(fields, width - 9);
}

std::string decision_line(const Newest::Codecs& codecs) {
  if (codecs.why.empty()) return "";
  return fmt::format("  auto   since step {}: {}", with_thousands(codecs.step), codecs.why);
}

std::string round_line(const Newest& newest, size_t width) {
  if (!newest.round) return "";
  const Newest::Round& round = *newest.round;
  return "  round  " +
         fitted({fmt::format("{} at step {}", round.number, with_thousands(round.step)),
                 round.skipped.empty() ? "" : "skipped: " + round.skipped,
                 round.global ? "" : "of a group",
                 round.leader ? fmt::format("leader {}", *round.leader) : "",
                 round.ranks > 0 ? fmt::format("{} workers", round.ranks) : "",
                 duration(round.seconds), human_bytes(round.sent_bytes),
                 newest.skipped_rounds > 0
                     ? fmt::format("{} skipped", with_thousands(newest.skipped_rounds))
                     : ""},
                width - 9);
}

std::string left_out_line(const Newest& newest, size_t width) {
  if (newest.left_out.empty()) return "";
  std::vector<std::string> fields;
  for (const auto& [rank, one] : newest.left_out)
    fields.push_back(fmt::format("rank {} in {} steps{}", rank, with_thousands(one.steps),
                                 one.why.empty() ? "" : " (" + one.why + ")"));
  return "  out    " + counted(fields, width - 9);
}

std::string stages_line(const Newest& newest, size_t width) {
  if (!newest.idle_share) return "";
  std::vector<std::string> fields = {fmt::format("idle {:.0f}%", 100 * *newest.idle_share)};
  for (const Newest::Boundary& one : newest.boundaries)
    fields.push_back(
        fmt::format("{} {} and {} back", one.behind, ratio(one.forward), ratio(one.backward)));
  return "  stages " + counted(fields, width - 9);
}

// The bar is the time in which the rank works, over that in which it waits, too: the rank that the
// others wait for has the longest.
std::string rank_line(const RankFigures& rank, size_t width, const Terminal& terminal) {
  const double works = rank.fetch + rank.compute + rank.update, whole = works + rank.wait;
  const std::string words =
      fitted({fmt::format("rank {:<3} ", rank.rank) +
                  (whole > 0 ? fmt::format("works {:>3.0f}%", 100 * works / whole) : ""),
              rank.silent_seconds > kRankSilent
                  ? fmt::format("nothing written for {}", duration(rank.silent_seconds))
                  : "",
              fmt::format("{:.3g} s", works), fmt::format("loss {:.4f}", rank.loss),
              "step " + with_thousands(rank.step)},
             width - std::min(width, kBarWidth + 3));
  return "  " + bar(whole > 0 ? works / whole : 0, kBarWidth, terminal) + " " + words;
}

std::vector<std::string> rank_lines(const FollowedRun& run, size_t width,
                                    const Terminal& terminal) {
  std::vector<RankFigures> ranks = run.ranks();
  if (ranks.size() < 2) return {};
  const size_t more = ranks.size() - std::min(ranks.size(), kRanksShown);
  if (more > 0) {
    std::stable_sort(
        ranks.begin(), ranks.end(),
        [](const RankFigures& left, const RankFigures& right) { return left.wait < right.wait; });
    ranks.resize(kRanksShown);
  }
  std::vector<std::string> lines;
  for (const RankFigures& rank : ranks) lines.push_back(rank_line(rank, width, terminal));
  if (more > 0) lines.push_back(fmt::format("  and {} ranks that wait longer", more));
  return lines;
}

}  // namespace

std::string fitted(const std::vector<std::string>& fields, size_t width) {
  std::string line;
  for (const std::string& field : fields) {
    if (field.empty()) continue;
    if (!line.empty() && columns(line) + 2 + columns(field) > width) break;
    line += (line.empty() ? "" : "  ") + field;
  }
  return line;
}

std::string bar(double part, size_t width, const Terminal& terminal) {
  const double within = part > 0 ? std::min(part, 1.0) : 0;  // whatever times a file has
  const auto full = static_cast<size_t>(std::lround(within * static_cast<double>(width)));
  return styled(terminal, Style::kGreen, repeat(terminal.unicode ? "\u2501" : "=", full)) +
         styled(terminal, Style::kFaint, repeat(terminal.unicode ? "\u2500" : ".", width - full));
}

std::vector<std::string> more_lines(const FollowedRun& run, size_t width,
                                    const Terminal& terminal) {
  const Newest& newest = run.newest();
  std::vector<std::string> lines;
  for (const std::string& line :
       {codecs_line(run, width), decision_line(newest.codecs), round_line(newest, width),
        left_out_line(newest, width), stages_line(newest, width)})
    if (!line.empty()) lines.push_back(line);
  for (std::string& line : rank_lines(run, width, terminal)) lines.push_back(std::move(line));
  return lines;
}

}  // namespace thinwire::cli
