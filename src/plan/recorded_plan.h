// RecordedPlan: the decisions of a file, which codec "auto:plan=FILE" follows in place of its own.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "plan/auto_link.h"
#include "thinwire/auto_codec.h"

namespace thinwire {

class RecordedPlan {
 public:
  // In ascending order of their steps; at least one.
  RecordedPlan(std::string path, std::vector<AutoDecision> decisions)
      : path_(std::move(path)), decisions_(std::move(decisions)) {}

  // What holds in `step`, which is the run's first one.
  AutoDecision begin(uint64_t step) const;

  // Fails with kMismatch, and names both, where a run before `step` followed other decisions than
  // these.
  Status check_followed(const std::vector<AutoDecision>& by_run, uint64_t step) const;

  // What holds from `step` on, if that is something else than `now`, which may be of a later step.
  std::optional<AutoDecision> next(uint64_t step, const AutoDecision& now) const;

 private:
  // What holds in `step`.
  const AutoDecision& at(uint64_t step) const;

  std::string path_;
  std::vector<AutoDecision> decisions_;
};

// The plan in the file `path` on rank 0, on all ranks; `base` has the codec "auto". Called by all
// ranks. Throws on all of them: Error(kIo) if the file cannot be read, Error(kCorrupt) if it holds
// no decisions, Error(kBadOption) and Error(kUnsupported) for decisions that an exchange of
// `tensors` could not follow to their end.
RecordedPlan read_plan(AutoLink& link, const ExchangeOptions& base,
                       const std::vector<TensorSpec>& tensors, const std::string& path);

}  // namespace thinwire
