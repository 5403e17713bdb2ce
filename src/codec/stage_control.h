// StageControl: how many stages SIDCo fits next: fixed, by the paper's rule, or by trying (scan).
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "thinwire/state.h"

namespace thinwire {

// The share of each stage: `first` of everything, then `later` of what the stage before kept.
struct StageRatios {
  double first = 1;
  double later = 1;  // first * later^(stages - 1) = density
};
StageRatios stage_ratios(double density, double first_ratio, int stages) noexcept;

// ceil(log2(1 / density)), at least 1: 4, 7 and 10 for 0.1, 0.01 and 0.001.
int max_stages(double density) noexcept;

struct StageRule {
  int fixed = 0;                // stages of every step; 0 adapts
  bool scan = true;             // else the paper's rule
  int window = 5;               // Q: steps between two adaptions
  double tolerance_high = 0.2;  // eps_H
  double tolerance_low = 0.2;   // eps_L
  int max_stages = 10;
};

// The count of stages of one stream, and what it is adapted by. A step is stages(), then record().
//
// plain: after every Q steps one stage less if the mean of kept over target was above 1 + eps_H,
// one more if it was below 1 - eps_L [the paper's rule]. Fewer stages keep fewer values only if the
// tail is lighter than the fitted law; on heavier ones the rule is stuck at 1 or runs to the
// maximum.
// scan: before the first of every Q steps, the count that comes nearest to the target on the very
// vector to be sent. It needs no direction, and reaches any count at once.
class StageControl {
 public:
  explicit StageControl(const StageRule& rule) : rule_(rule) { next_ = committed_ = start(); }

  int stages() const noexcept { return next_.stages; }

  // Whether the scan rule wants to look at this step's vector; choose() takes what it found.
  bool scan_due() const noexcept { return rule_.fixed == 0 && rule_.scan && next_.steps == 0; }
  void choose(int stages) noexcept { next_.stages = stages; }

  // This step's kept over target.
  void record(double ratio) noexcept;

  void commit() noexcept { committed_ = next_; }
  void rollback() noexcept { next_ = committed_; }

  StateArrays save() const;
  Status load(const StateArrays& arrays);

  int max_stages() const noexcept { return rule_.max_stages; }

 private:
  struct State {
    int stages = 1;
    int64_t steps = 0;     // of the current window
    double ratio_sum = 0;  // over them
  };
  State start() const noexcept { return {.stages = rule_.fixed == 0 ? 1 : rule_.fixed}; }

  StageRule rule_;
  State committed_;
  State next_;
};

}  // namespace thinwire
