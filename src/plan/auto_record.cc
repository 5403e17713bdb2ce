// Decisions as text: "step<tab>codec", then a codec and a tensor for each exception.
// SPDX-License-Identifier: Apache-2.0
#include <charconv>
#include <utility>

#include "thinwire/auto_codec.h"

namespace thinwire {
namespace {

constexpr std::string_view kTitle = "thinwire decisions 1";
constexpr std::string_view kLoss =
    "# made by auto:loss=";  // a comment to those who only read decisions

std::string_view take(std::string_view& text, char end) {
  const size_t at = text.find(end);
  const std::string_view part = text.substr(0, at);
  text.remove_prefix(at == std::string_view::npos ? text.size() : at + 1);
  return part;
}

bool read_line(std::string_view line, AutoDecision& decision) {
  const std::string_view step = take(line, '\t');
  const auto [end, error] = std::from_chars(step.data(), step.data() + step.size(), decision.step);
  if (error != std::errc() || end != step.data() + step.size()) return false;
  decision.codec = take(line, '\t');
  while (!line.empty()) {
    const std::string_view codec = take(line, '\t');
    const std::string_view tensor = take(line, '\t');
    if (codec.empty() || tensor.empty()) return false;
    decision.others.emplace_back(tensor, codec);
  }
  return !decision.codec.empty();
}

}  // namespace

std::string to_text(const std::vector<AutoDecision>& decisions) {
  std::string text = std::string(kTitle) + "\n";
  for (const AutoDecision& decision : decisions) {
    if (!decision.why.empty()) text += "# " + decision.why + "\n";
    text += std::to_string(decision.step) + "\t" + decision.codec;
    for (const auto& [tensor, codec] : decision.others) text += "\t" + codec + "\t" + tensor;
    text += "\n";
  }
  return text;
}

std::string record_text(AllowedLoss loss, const std::vector<AutoDecision>& decisions) {
  std::string text = to_text(decisions);
  text.insert(kTitle.size() + 1, std::string(kLoss) + std::string(to_string(loss)) + "\n");
  return text;
}

std::string_view recorded_loss(std::string_view text) {
  take(text, '\n');
  const std::string_view line = take(text, '\n');
  return line.starts_with(kLoss) ? line.substr(kLoss.size()) : std::string_view();
}

Result<std::vector<AutoDecision>> decisions_from(std::string_view text) {
  const auto fail = [](size_t number, const std::string& why) {
    return Status::fail(ErrorCode::kCorrupt,
                        "decisions, line " + std::to_string(number) + ": " + why);
  };
  if (take(text, '\n') != kTitle) return fail(1, "is not '" + std::string(kTitle) + "'");
  std::vector<AutoDecision> decisions;
  std::string why;
  for (size_t number = 2; !text.empty(); ++number) {
    const std::string_view line = take(text, '\n');
    if (line.empty() || line.starts_with(kLoss)) continue;
    if (line.front() == '#') {
      why = line.substr(line.starts_with("# ") ? 2 : 1);
      continue;
    }
    AutoDecision decision{.step = 0, .codec = {}, .why = std::exchange(why, {})};
    if (!read_line(line, decision))
      return fail(number,
                  "is not a step and a codec, with a tab between them, and a codec and a "
                  "tensor for each exception");
    if (!decisions.empty() && decision.step <= decisions.back().step)
      return fail(number, "steps do not ascend");
    decisions.push_back(std::move(decision));
  }
  if (decisions.empty()) return fail(2, "there is no decision");
  return decisions;
}

}  // namespace thinwire
