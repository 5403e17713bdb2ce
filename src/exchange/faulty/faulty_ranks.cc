// FaultyRanks: from accounts to a decision, and from that to the rule for those that are left.
// SPDX-License-Identifier: Apache-2.0
#include "exchange/faulty/faulty_ranks.h"

#include <algorithm>

namespace thinwire {

FaultyRanks::FaultyRanks(StepContext& context, const NamedCombine& combine)
    : context_(context),
      text_(combine.canonical),
      roster_(context.ranks(), context.rank(), combine.rule->tolerates(context.ranks())),
      rounds_(context, roster_),
      rules_(roster_.most() + 1) {
  rules_[0] = combine.rule;
}

void FaultyRanks::begin(bool asks) {
  roster_.begin();
  if (asks) roster_.note(context_.rank(), LeftOutFor::kRequest);
}

bool FaultyRanks::agree() {
  const std::vector<Account> mine = roster_.accounts();
  const std::vector<Account> all = rounds_.call(mine);
  const size_t n = context_.ranks();
  decision_ = decide(all, n, roster_.most());
  roster_.close(decision_);
  context_.left_out = decision_.leaves_out(context_.rank());
  context_.some_left_out = !decision_.left_out.empty();
  if (decision_.left_out.size() > roster_.most()) return false;
  for (size_t rank = 0; rank < n; ++rank)
    if (!decision_.leaves_out(rank) && mine[rank] != all[rank * n + rank])
      throw Error(
          ErrorCode::kCorrupt,
          "exchange: rank " + std::to_string(context_.rank()) +
              " is left out by the others and cannot follow them: it has not received what rank " +
              std::to_string(rank) + " sent them");
  choose_rule();
  return true;
}

void FaultyRanks::choose_rule() {
  const size_t counted = context_.ranks() - decision_.left_out.size();
  for (size_t excused = decision_.proven(); excused <= decision_.left_out.size(); ++excused) {
    if (rules_[excused] == nullptr) rules_[excused] = make_combine(text_, excused).value().rule;
    rule_ = rules_[excused].get();
    if (rule_->least_ranks().count <= counted) return;
  }
}

std::vector<bool> FaultyRanks::counted() const {
  std::vector<bool> ranks(context_.ranks());
  for (size_t rank = 0; rank < ranks.size(); ++rank) ranks[rank] = !decision_.leaves_out(rank);
  return ranks;
}

// A fault of values is told rather than silence, and this rather than a request.
Verdict FaultyRanks::verdict() const noexcept {
  FaultLog log;
  Verdict silent;
  for (const Decision::Entry& entry : decision_.left_out) {
    const int rank = entry.left_out.rank;
    if (entry.left_out.why == LeftOutFor::kNonFinite)
      log.add(ErrorCode::kNonFinite, entry.stream, rank);
    else if (entry.left_out.why == LeftOutFor::kRequest)
      log.ask_to_skip(rank);
    else if (entry.left_out.why != LeftOutFor::kSilence)
      log.add(ErrorCode::kCorrupt, entry.stream, rank);
    else if (silent.code == ErrorCode::kOk)
      silent = {.code = ErrorCode::kTimeout, .stream = 0, .rank = rank};
  }
  const Verdict told = unpack_verdict(log.word());
  return told.code == ErrorCode::kOk && silent.code != ErrorCode::kOk ? silent : told;
}

std::string FaultyRanks::text() const {
  std::string text;
  for (const Decision::Entry& entry : decision_.left_out)
    text += (text.empty() ? "" : ", ") + describe(entry.left_out);
  return text + "; the rule goes on without " + std::to_string(roster_.most()) + " at most";
}

}  // namespace thinwire
