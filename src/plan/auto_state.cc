// AutoState: two texts.
// SPDX-License-Identifier: Apache-2.0
#include "plan/auto_state.h"

#include <span>
#include <utility>

namespace thinwire {
namespace {

StateArray text_array(std::string name, const std::string& text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {.name = std::move(name),
          .type = StateType::kUint8,
          .shape = {bytes.size()},
          .on_resize = OnResize::kShared,
          .data = {bytes.begin(), bytes.end()}};
}

Result<std::string> text_in(const StateArrays& arrays, std::string_view name) {
  const StateArray* found = find_state(arrays, name);
  if (found == nullptr || found->type != StateType::kUint8)
    return Status::fail(ErrorCode::kMismatch,
                        "'" + std::string(name) + "' of codec 'auto' is absent or no text");
  return std::string(reinterpret_cast<const char*>(found->data.data()), found->data.size());
}

}  // namespace

StateArrays AutoState::save() const {
  if (decisions.empty()) return {};
  std::string lines;
  for (const std::string& memory : memories) lines += memory + "\n";
  return {text_array("text", to_text(decisions)), text_array("memories", lines)};
}

Status AutoState::load(const StateArrays& arrays) {
  auto text = text_in(arrays, "text"), lines = text_in(arrays, "memories");
  if (!text) return text.status();
  if (!lines) return lines.status();
  auto read = decisions_from(text.value());
  if (!read) return read.status();
  decisions = std::move(read.value());
  memories.clear();
  std::string_view rest = lines.value();
  for (size_t end; (end = rest.find('\n')) != std::string_view::npos; rest.remove_prefix(end + 1))
    memories.emplace_back(rest.substr(0, end));
  return Status::ok();
}

void keep_memories(const std::vector<std::string>& memories, ExchangeOptions& options) {
  if (memories.size() != options.rules.size() + 1) return;
  options.feedback = memories.front();
  for (size_t i = 0; i < options.rules.size(); ++i) options.rules[i].feedback = memories[i + 1];
}

std::vector<std::string> memories_of(const ExchangeOptions& options) {
  std::vector<std::string> memories = {options.feedback};
  for (const TensorRule& rule : options.rules) memories.push_back(rule.feedback);
  return memories;
}

}  // namespace thinwire
