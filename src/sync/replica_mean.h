// ReplicaMean: the mean of all workers' vectors, through an exchange.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/aligned.h"
#include "thinwire/exchange.h"
#include "thinwire/synchroniser.h"

namespace thinwire {

class ReplicaMean {
 public:
  // In fp32, remembering nothing; the first of the two that callers choose from.
  ReplicaMean(Group& group, Store& store, const std::vector<TensorSpec>& tensors);

  // With the codec, feedback and method of `options`; `feedback` is what "auto" stands for where
  // the codec is lossy. Memories are those of "sync/<tensor>". `rounds` were held before. If the
  // tensors are parts of longer vectors, `places` says where each begins in those.
  ReplicaMean(Group& group, Store& store, const std::vector<TensorSpec>& tensors,
              const SynchroniserOptions& options, const std::string& feedback, uint64_t rounds,
              std::vector<size_t> places = {});

  // The mean over ranks of `values`, with the same bits on every rank. What travels is values -
  // origin, `origin` being the same on every rank, unless it is empty:
  //   mean = origin + exchange(values - origin)
  // mean() holds it, unless the round is skipped; then memories are as they were. A rank that is
  // not `fit` has all skip the round; the fault's code is then kOk, and its rank that one.
  StepReport form(std::span<const float> values, std::span<const float> origin, bool fit = true);

  // The two halves of form, between which the exchange works in the background. `origin` stays as
  // it is between them.
  void begin(std::span<const float> values, std::span<const float> origin, bool fit = true);
  StepReport end(std::span<const float> origin);

  // Of its tensors, one after another.
  std::span<const float> mean() const noexcept { return mean_; }

 private:
  std::vector<TensorSpec> tensors_;
  std::vector<size_t> places_;  // of each tensor in the vectors that callers give
  AlignedVector<float> mean_;
  std::unique_ptr<Exchange> exchange_;
};

// The options of the exchange that carries `options`, with `feedback` as above.
ExchangeOptions replica_exchange(const SynchroniserOptions& options, const std::string& feedback,
                                 uint64_t rounds);

// What a round of a ReplicaMean comes to.
RoundReport round_report(const StepReport& exchange, uint64_t round, uint64_t step);

}  // namespace thinwire
