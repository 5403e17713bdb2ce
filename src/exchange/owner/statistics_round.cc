// StatisticsRound: sends this rank's statistics to all, and adds those of all owners.
// SPDX-License-Identifier: Apache-2.0
#include "exchange/owner/statistics_round.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "comm/sealed_words.h"
#include "exchange/step/message_tags.h"
#include "exchange/step/stopwatch.h"

namespace thinwire {
StatisticsRound::StatisticsRound(StepContext& context, std::shared_ptr<const VectorRule> rule)
    : context_(context),
      usual_(std::move(rule)),
      rule_(usual_.get()),
      of_owners_(context.ranks()),
      peers_(context.ranks()) {}

void StatisticsRound::begin() { begin(*usual_, context_.attendance.count()); }

void StatisticsRound::begin(const VectorRule& rule, size_t ranks) {
  rule_ = &rule;
  participants_ = ranks;
  const size_t count = rule_->statistics(ranks);
  alike_.assign(count, 0.0);
  for (auto& of_owner : of_owners_) of_owner.assign(count, 0.0);
  row_weights_.assign(rule_->weights(ranks), 0.0f);
  has_owners_ = under_way_ = known_ = false;
  sent_ = true;
}

std::span<double> StatisticsRound::own() noexcept {
  has_owners_ = true;
  return of_owners_[context_.rank()];
}

void StatisticsRound::send() {
  under_way_ = true;
  if (!has_owners_) return;
  const std::vector<double>& mine = of_owners_[context_.rank()];
  message_.clear();
  for (const double number : mine) message_.push_back(std::bit_cast<uint64_t>(number));
  message_.push_back(seal_of(message_, context_.call.step, context_.group.rank()));
  sent_ = context_.ranks() == 1;
  context_.for_others(peers_, [&](int rank, Peer& peer) {
    peer.message.resize(message_.size());
    peer.receives.set(context_.group.receive(std::as_writable_bytes(std::span(peer.message)), rank,
                                             kStatisticsTag));
    peer.sends.set(context_.group.send(std::as_bytes(std::span(message_)), rank, kStatisticsTag));
  });
}

bool StatisticsRound::advance() {
  if (!under_way_ || done()) return false;
  bool moved = false;
  bool all_arrived = true;
  for (size_t rank = 0; rank < peers_.size(); ++rank) {
    Peer& peer = peers_[rank];
    if (peer.receives.transfer() == nullptr) continue;
    if (peer.receives.done()) {
      take(rank);
      moved = true;
    } else {
      all_arrived = false;
    }
  }
  if (all_arrived && !known_) {
    compute_weights();
    moved = true;
  }
  if (!sent_)
    sent_ = std::all_of(peers_.begin(), peers_.end(), [](Peer& peer) { return peer.sends.done(); });
  return moved || done();
}

// A damaged message leaves zeros: the step is skipped, whatever the weights are.
void StatisticsRound::take(size_t rank) {
  const auto numbers = std::span(peers_[rank].message).first(alike_.size());
  if (seal_of(numbers, context_.call.step, static_cast<int>(rank)) != peers_[rank].message.back()) {
    context_.faults.add(ErrorCode::kCorrupt, 0, static_cast<int>(rank));
    return;
  }
  std::transform(numbers.begin(), numbers.end(), of_owners_[rank].begin(),
                 [](uint64_t number) { return std::bit_cast<double>(number); });
}

void StatisticsRound::compute_weights() {
  const Stopwatch watch(context_.decompress_seconds);
  std::vector<double> total(alike_.size(), 0.0);
  const auto add = [&](const std::vector<double>& part) {
    for (size_t i = 0; i < total.size(); ++i) total[i] += part[i];
  };
  for (const std::vector<double>& of_owner : of_owners_) add(of_owner);
  add(alike_);
  rule_->weigh(total,
               {.ranks = participants_, .seed = context_.call.seed, .step = context_.call.step},
               row_weights_);
  known_ = true;
}

std::vector<size_t> StatisticsRound::unchosen() const {
  std::vector<size_t> rows;
  for (size_t row = 0; row < participants_; ++row)
    if (rule_->leaves_out(row, participants_, row_weights_)) rows.push_back(row);
  return rows;
}

const Transfer* StatisticsRound::awaited() const noexcept {
  for (const auto pending : {&Peer::receives, &Peer::sends})
    for (const Peer& peer : peers_)
      if ((peer.*pending).transfer() != nullptr) return (peer.*pending).transfer();
  return nullptr;
}

}  // namespace thinwire
