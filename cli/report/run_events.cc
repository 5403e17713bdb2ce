// Collects events. Skips are listed up to a bound of their own, so that many of them do not hide a
// worker that was lost; all are counted.
// SPDX-License-Identifier: Apache-2.0
#include "cli/report/run_events.h"

#include <fmt/format.h>

#include <utility>

#include "cli/json_value.h"

namespace thinwire::cli {
namespace {

using Json = nlohmann::json;

constexpr uint64_t kSkipsListed = 200;
constexpr uint64_t kOthersListed = 200;

int64_t rank_of(const Json& json) { return integer(json, "rank", -1); }

}  // namespace

void RunEvents::add_step(uint64_t step, const Json& line) {
  if (is_true(line, "skipped")) add_skipped(step, object(line, "fault"));
  if (const Json& round = object(line, "round"); round.contains("skipped"))
    add_skipped_round(step, round);
  for (const Json& one : list(line, "left_out"))
    ++left_out_[rank_of(one)][text(one, "why", "unknown reason")];
  for (const Json& rank : list(line, "unchosen"))
    if (rank.is_number_integer()) ++left_out_[rank.get<int64_t>()]["the rule's choice"];
  for (const Json& worker : list(line, "lost"))
    add(step, fmt::format("worker {} lost: {}", rank_of(worker), text(worker, "why")));
  for (const Json& worker : list(line, "joined"))
    add(step, fmt::format("worker {} joined", worker.dump()));
}

void RunEvents::add_skipped(uint64_t step, const Json& fault) {
  ++skipped_;
  add_bounded(skips_listed_, kSkipsListed, step,
              fmt::format("skipped: {}, rank {}, {}", text(fault, "what", "unknown reason"),
                          rank_of(fault), text(fault, "stream")));
}

void RunEvents::add_skipped_round(uint64_t step, const Json& round) {
  ++skipped_rounds_;
  add_bounded(skips_listed_, kSkipsListed, step,
              fmt::format("round {} skipped: {}, rank {}, {}", integer(round, "round", -1),
                          text(round, "skipped", "unknown reason"), integer(round, "culprit", -1),
                          text(round, "where")));
}

void RunEvents::add(uint64_t step, std::string what) {
  add_bounded(others_listed_, kOthersListed, step, std::move(what));
}

void RunEvents::add_bounded(uint64_t& listed, uint64_t most, uint64_t step, std::string what) {
  if (++listed > most)
    ++more_;
  else
    events_.push_back({{"step", step}, {"what", std::move(what)}});
}

void RunEvents::add_unreadable(size_t row) {
  if (unreadable_++ == 0) first_unreadable_ = row;
}

void RunEvents::write(Json& run, uint64_t steps) const {
  Json events = events_;
  for (const auto& [rank, reasons] : left_out_) {
    std::string why;
    for (const auto& [reason, count] : reasons)
      why += fmt::format("{}{} of {} steps for {}", why.empty() ? "" : ", ", count, steps, reason);
    events.push_back({{"step", steps}, {"what", fmt::format("rank {} left out: {}", rank, why)}});
  }
  if (unreadable_ > 0)
    events.push_back(
        {{"step", steps},
         {"what",
          fmt::format("metrics.jsonl: {} no step or test and {} left out; the first is "
                      "line {}",
                      unreadable_ == 1 ? "1 line is" : fmt::format("{} lines are", unreadable_),
                      unreadable_ == 1 ? "is" : "are", first_unreadable_)}});
  run["skipped"] = skipped_;
  run["skipped_rounds"] = skipped_rounds_;
  run["events"] = std::move(events);
  run["more_events"] = more_;
}

size_t ranks_left_out(const Json& line) {
  return list(line, "left_out").size() + list(line, "unchosen").size();
}

}  // namespace thinwire::cli
