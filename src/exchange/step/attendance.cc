// Attendance: sends this rank's weight to all, receives theirs, and computes the factor.
// SPDX-License-Identifier: Apache-2.0
#include "exchange/step/attendance.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <span>
#include <string>

#include "comm/other_ranks.h"
#include "exchange/step/message_tags.h"

namespace thinwire {
namespace {

// What is owed is sealed as another subject, so that it is never taken for a weight.
uint64_t debts_of(uint64_t step) { return ~step; }

}  // namespace

Attendance::Attendance(Group& group)
    : group_(group),
      weights_(static_cast<size_t>(group.size()), 1.0),
      debts_(weights_.size()),
      others_(weights_.size()),
      sends_(weights_.size()),
      receives_(weights_.size()),
      count_(weights_.size()) {}

void Attendance::begin() {
  std::fill(weights_.begin(), weights_.end(), 1.0);
  compute_factor();
}

void Attendance::begin(uint64_t step, double weight, std::optional<double> owed) {
  const auto own = static_cast<size_t>(group_.rank());
  step_ = step;
  weights_[own] = weight;
  mine_[0] = seal_word(std::bit_cast<uint64_t>(weight), step, group_.rank());
  word_count_ = owed ? 2 : 1;
  if (owed) {
    debts_[own] = LostRank{.rank = group_.rank(), .owed = *owed, .step = step};
    mine_[1] = seal_word(std::bit_cast<uint64_t>(*owed), debts_of(step), group_.rank());
  }
  missing_ = weights_.size() - 1;
  sent_ = missing_ == 0;
  for_other_ranks(group_, [&](size_t rank) {
    const int peer = static_cast<int>(rank);
    const auto to = std::as_writable_bytes(told(others_[rank]));
    receives_[rank] = group_.receive(to, peer, kAttendanceTag);
    sends_[rank] = group_.send(std::as_bytes(told(mine_)), peer, kAttendanceTag);
  });
  if (missing_ == 0) compute_factor();
}

bool Attendance::advance() {
  if (known()) return false;
  bool moved = false;
  for (size_t rank = 0; rank < weights_.size(); ++rank) {
    if (receives_[rank] == nullptr || !receives_[rank]->done()) continue;
    receives_[rank].reset();
    take(rank);
    if (--missing_ == 0) compute_factor();
    moved = true;
  }
  for (auto& send : sends_)
    if (send != nullptr && send->done()) send.reset();
  sent_ = std::all_of(sends_.begin(), sends_.end(), [](const auto& one) { return one == nullptr; });
  return moved || known();
}

void Attendance::take(size_t rank) {
  const int sender = static_cast<int>(rank);
  const auto read = [&](const SealedWord& word, uint64_t subject, const std::string& what) {
    const auto number = std::bit_cast<double>(open_word(word, subject, sender));
    if (!std::isfinite(number) || number < 0)
      throw Error(ErrorCode::kCorrupt,
                  "exchange: " + what + " rank " + std::to_string(rank) + " makes no sense");
    return number;
  };
  weights_[rank] = read(others_[rank][0], step_, "the weight of");
  if (word_count_ < 2) return;
  const double owed = read(others_[rank][1], debts_of(step_), "the norm of what is owed by");
  debts_[rank] = LostRank{.rank = sender, .owed = owed, .step = step_};
}

const Transfer* Attendance::awaited() const noexcept {
  for (const auto* transfers : {&receives_, &sends_})
    for (const auto& one : *transfers)
      if (one != nullptr) return one.get();
  return nullptr;
}

size_t Attendance::participant(size_t index) const noexcept {
  size_t rank = 0;
  while (!takes_part(rank) || index-- > 0) ++rank;
  return rank;
}

// In double and in rank order, so that the sum is the same on every rank. Sums of equal weights are
// off by some 2^-53 each, which the factor's 24 bits do not show.
void Attendance::compute_factor() {
  double own = weights_[static_cast<size_t>(group_.rank())];
  double sum = std::accumulate(weights_.begin(), weights_.end(), 0.0);
  if (!std::isfinite(sum)) {  // of weights near the largest double
    const double share = 0.5 / static_cast<double>(weights_.size());
    sum = 0;
    for (const double weight : weights_) sum += share * weight;
    own *= share;
  }
  count_ = static_cast<size_t>(
      std::count_if(weights_.begin(), weights_.end(), [](double weight) { return weight > 0; }));
  factor_ = own > 0 ? static_cast<float>(static_cast<double>(weights_.size()) * (own / sum)) : 0;
}

}  // namespace thinwire
