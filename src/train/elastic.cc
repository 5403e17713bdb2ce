// Elastic: makes groups of the workers that are left, and names those that are not.
// SPDX-License-Identifier: Apache-2.0
#include "train/elastic.h"

#include <algorithm>

#include "thinwire/survived.h"

namespace thinwire {
namespace {

std::chrono::milliseconds deadline_of(const Options& recipe) {
  return std::chrono::milliseconds(
      static_cast<int64_t>(recipe.number("exchange.deadline_seconds") * 1000));
}

}  // namespace

// Those that wait for a rank in a step learn of its silence at the deadline, and it may be about to
// learn of theirs.
Elastic::Elastic(Members& members, const Options& recipe)
    : members_(members), patience_(deadline_of(recipe) * 5 / 4) {
  group_.set_deadline(deadline_of(recipe));
}

bool Elastic::meet(bool admit) {
  Meeting meeting = members_.meet(patience_, admit);
  if (meeting.group == nullptr) return false;
  group_.follow(std::move(meeting.group));
  generation_ = meeting.generation;
  workers_ = meeting.workers;
  newcomers_.insert(newcomers_.end(), meeting.newcomers.begin(), meeting.newcomers.end());
  std::erase_if(newcomers_, [&](int worker) {
    return std::find(meeting.workers.begin(), meeting.workers.end(), worker) ==
           meeting.workers.end();
  });
  return true;
}

bool Elastic::is_newcomer() const noexcept {
  return std::find(newcomers_.begin(), newcomers_.end(), members_.number()) != newcomers_.end();
}

bool Elastic::is_loss(const Error& error) {
  if (dynamic_cast<const AgreedError*>(&error) != nullptr ||
      dynamic_cast<const SurvivedError*>(&error) != nullptr)
    return false;
  return error.code() == ErrorCode::kPeerLost || error.code() == ErrorCode::kTimeout;
}

std::vector<LostWorker> Elastic::new_losses(const std::vector<LostRank>& lost,
                                            const std::string& why) {
  std::vector<LostWorker> found;
  for (const LostRank& one : lost)
    if (reported_.emplace(one.generation, one.rank).second)
      found.push_back(
          {.rank = members_.worker_of(one.generation, one.rank), .why = why, .owed = one.owed});
  return found;
}

std::vector<int> Elastic::reported() const {
  std::vector<int> all;
  for (const auto& [generation, rank] : reported_)
    all.insert(all.end(), {static_cast<int>(generation), rank});
  return all;
}

void Elastic::take_reported(const std::vector<int>& reported) {
  for (size_t i = 0; i + 2 <= reported.size(); i += 2)
    reported_.emplace(static_cast<uint32_t>(reported[i]), reported[i + 1]);
}

}  // namespace thinwire
