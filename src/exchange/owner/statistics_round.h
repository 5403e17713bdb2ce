// StatisticsRound: adds up the statistics of a step over all ranks and computes from them the
// weights of a VectorRule.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "exchange/rules/vector_rule.h"
#include "exchange/step/step_context.h"
#include "exchange/wire/pending.h"

namespace thinwire {

// A step is begin, then own and alike until all contributions have arrived, then send, then advance
// until done. S statistics are
//
//   total = own of rank 0 + own of rank 1 + ... + alike     in double and in this order,
//
// so that every rank comes to the same bits, and the rule to the same weights. Each rank sends its
// own to all others: n - 1 messages of 8 S + 8 bytes, S numbers and a seal over numbers, step and
// sender. No message is sent if no method has owners. A damaged message is its sender's fault, by
// which the step is skipped. Not shared between threads.
class StatisticsRound {
 public:
  StatisticsRound(StepContext& context, std::shared_ptr<const VectorRule> rule);

  // REQUIRES: it is known who takes part, and these ranks are enough for the rule.
  void begin();

  // The same for a step with another rule of the same kind, and with as many ranks. `rule` outlives
  // the step.
  void begin(const VectorRule& rule, size_t ranks);

  // Where statistics are added: of values that this rank owns; of values that every rank has alike,
  // with the same bits.
  std::span<double> own() noexcept;
  std::span<double> alike() noexcept { return alike_; }

  // Nothing is added from here on.
  void send();
  bool under_way() const noexcept { return under_way_; }

  // Goes as far as it can without waiting; returns whether it got anywhere.
  bool advance();

  // Whether the weights are known; whether all that was sent has left, too.
  bool known() const noexcept { return known_; }
  bool done() const noexcept { return known_ && sent_; }

  // Of the rule, for the ranks that take part. REQUIRES: known.
  std::span<const float> row_weights() const noexcept { return row_weights_; }

  // The numbers of those whose rows have no weight, among the ranks that take part. REQUIRES:
  // known.
  std::vector<size_t> unchosen() const;

  // A transfer that it waits for, for errors; null when it waits for none.
  const Transfer* awaited() const noexcept;

 private:
  struct Peer {
    std::vector<uint64_t> message;
    Pending sends, receives;
  };

  void take(size_t rank);
  void compute_weights();

  StepContext& context_;
  const std::shared_ptr<const VectorRule> usual_;
  const VectorRule* rule_;  // of this step
  size_t participants_ = 0;
  std::vector<double> alike_;
  std::vector<std::vector<double>> of_owners_;  // by rank
  std::vector<uint64_t> message_;               // this rank's
  std::vector<Peer> peers_;                     // by rank; this rank's own stays empty
  std::vector<float> row_weights_;
  bool has_owners_ = false;
  bool under_way_ = false;
  bool known_ = false;
  bool sent_ = true;
};

}  // namespace thinwire
