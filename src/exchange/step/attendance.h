// Attendance: which ranks take part in a step, and with which weights.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "comm/sealed_words.h"
#include "thinwire/exchange.h"
#include "thinwire/group.h"

namespace thinwire {

// Every rank tells every other one its weight before anything is encoded: n - 1 messages of 16
// bytes. They are a round of their own, and do not travel in the frames, for two reasons.
//
//   - A weight is multiplied into the gradient, before the memory adds what it owes: rank r's
//     values times n w_r / (w_0 + ... + w_(n-1)). Then all that a memory keeps counts 1/n in
//     whichever step it is sent, and momentum and selection see what the rank contributes. If the
//     owner of a value weighed the contributions, a rest that was left at weight 1 would be sent at
//     weight 10. That factor takes all weights.
//   - Nobody waits for messages of a rank that sits out, so that it sends none.
//
// Ranks may tell what they owe beside it, in 16 more bytes.
//
// A damaged weight is an error that ends the exchange, since ranks would otherwise divide by
// different sums. Not shared between threads.
class Attendance {
 public:
  explicit Attendance(Group& group);

  // A step in which all ranks take part alike: nothing is sent.
  void begin();

  // A step in which this rank weighs `weight`, or sits out with 0: all ranks tell each other. With
  // `owed`, the norm of what this rank's memories owe before the step, they tell that, too; all
  // ranks give it, or none.
  void begin(uint64_t step, double weight, std::optional<double> owed = std::nullopt);

  // Looks at what arrived; returns whether anything had. Throws Error(kCorrupt), naming the sender.
  bool advance();
  // Whether all have told, and this rank's own words have left: the next step writes over them.
  bool known() const noexcept { return missing_ == 0 && sent_; }

  // A transfer that it waits for, for errors; null when it waits for none.
  const Transfer* awaited() const noexcept;

  // The rest may be asked once it is known.
  bool takes_part(size_t rank) const noexcept { return weights_[rank] > 0; }
  size_t count() const noexcept { return count_; }  // ranks that take part

  // The rank that is number `index` among those that take part. REQUIRES: index < count().
  size_t participant(size_t index) const noexcept;

  // What this rank's values are multiplied by so that their sum over ranks times 1/n is the
  // weighted mean: exactly 1 where all ranks weigh the same; 0 where this rank sits out.
  float factor() const noexcept { return factor_; }

  // By rank, what it last told that it owes; of a step that failed there may be some of an earlier
  // one, or none.
  const std::vector<std::optional<LostRank>>& debts() const noexcept { return debts_; }

 private:
  using Words = std::array<SealedWord, 2>;  // a weight; what is owed, if ranks tell it

  std::span<SealedWord> told(Words& words) const { return std::span(words).first(word_count_); }
  void take(size_t rank);
  void compute_factor();

  Group& group_;
  uint64_t step_ = 0;
  std::vector<double> weights_;  // by rank
  std::vector<std::optional<LostRank>> debts_;
  size_t word_count_ = 1;
  Words mine_;
  std::vector<Words> others_;  // by rank
  std::vector<std::unique_ptr<Transfer>> sends_, receives_;
  size_t missing_ = 0;  // weights of others
  bool sent_ = true;
  size_t count_;
  float factor_ = 1;
};

}  // namespace thinwire
