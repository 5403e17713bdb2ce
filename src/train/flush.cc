// Asks the registry of memories which of them owe something.
// SPDX-License-Identifier: Apache-2.0
#include "train/flush.h"

#include <string>
#include <utility>
#include <vector>

#include "exchange/terms/sections.h"
#include "thinwire/auto_codec.h"
#include "thinwire/feedback.h"
#include "thinwire/settled.h"

namespace thinwire {
namespace {

Status refuse(const std::string& why) { return Status::fail(ErrorCode::kBadOption, why); }

// The exchange's own, then those of its rules.
std::vector<SettledOptions> all_settled(const ExchangeOptions& options) {
  std::vector<SettledOptions> all;
  for (const ExchangeOptions& setting : settings_of(auto_stand_in(options)))
    all.push_back(settled_options(setting).value());
  return all;
}

}  // namespace

Status check_flush(const ExchangeOptions& options) {
  size_t vectors = 0, owing = 0;
  std::string memories;
  for (const SettledOptions& settled : all_settled(options)) {
    const FeedbackEntry& memory = *find_feedback(settled.feedback).value().entry;
    if (memory.name == "efmixed")
      return refuse("memory efmixed sends a share of what it owes in every step, not all in one");
    memories += (memories.empty() ? "" : ", ") + std::string(memory.name);
    if (!memory.owes) continue;
    ++owing;
    vectors += is_one_stream(settled.grouping);
  }
  if (owing == 0) {
    std::string choices;
    for (const FeedbackEntry* entry : list_feedbacks())
      if (entry->owes) choices += (choices.empty() ? "" : ", ") + std::string(entry->name);
    return refuse("nothing is owed at the end of a run with memory " + memories +
                  "; memories that owe are " + choices);
  }
  if (vectors > 1)
    return refuse(
        "several rules have one vector of all their tensors each, and one step cannot send what "
        "all of them owe; use grouping tensor");
  return Status::ok();
}

// Memories and streams are named, so that tensors with different ones stay apart.
ExchangeOptions flushing(ExchangeOptions options) {
  const std::vector<SettledOptions> settled = all_settled(options);
  const auto send_all = [](auto& setting, const SettledOptions& before) {
    setting.codec = "fp32";
    setting.method = "auto";
    setting.feedback = before.feedback;
    setting.grouping = is_one_stream(before.grouping) ? Grouping::kModel : Grouping::kTensor;
  };
  for (size_t i = 0; i < options.rules.size(); ++i) send_all(options.rules[i], settled[i + 1]);
  send_all(options, settled[0]);
  return options;
}

}  // namespace thinwire
