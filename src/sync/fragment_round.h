// FragmentRound: the rounds of one fragment, each of which may go on in the background while its
// worker steps.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "sync/replica_mean.h"
#include "sync/sync_memory.h"
#include "thinwire/synchroniser.h"

namespace thinwire {

// A round is begin, then take. Between the two its result is on the way, or has arrived; await
// waits for it. What has arrived is in the memory, so that a run that is saved then goes on with
// the same bits. Used by one thread.
class FragmentRound {
 public:
  static constexpr size_t kNumbers = 10;  // that it keeps in the memory

  // What it is of. The spans are of all parameters. `arrived` is where means wait, empty if rounds
  // end in the step in which they begin; `numbers` are kNumbers of the memory, all 0 before the
  // first step.
  struct Place {
    std::vector<TensorSpec> tensors;  // all
    std::vector<size_t> own;          // indices of the fragment's
    std::span<float> arrived;
    std::span<double> numbers;
  };

  explicit FragmentRound(Place place) : place_(std::move(place)), offsets_(offsets_of(place_)) {}

  // Whether `numbers` are such as a round leaves, before anything else is asked: whole, and small
  // enough to be exact. Those of a file that is not what was saved may be anything.
  bool numbers_make_sense() const noexcept;

  // Called by all ranks, before the first round. As the constructor of ReplicaMean.
  void connect(Group& group, Store& store, const SynchroniserOptions& options,
               const std::string& feedback);

  // The local steps after which the round under way began; 0: none is.
  uint64_t begun() const noexcept {
    return static_cast<uint64_t>(std::abs(place_.numbers[kBegun]));
  }

  // The mean of all ranks' `parameters` sets out, after `step` > 0 local steps. `origin` as
  // ReplicaMean::form has it; it stays as it is until take. REQUIRES: none is under way.
  void begin(std::span<const float> parameters, std::span<const float> origin, uint64_t step);

  // Waits for the round under way, if there is one.
  void await();

  // Ends the round under way. Unless it was skipped, calls each(at, mean) for every tensor of the
  // fragment: where it begins among all parameters, and its values' mean. The report has neither
  // number nor step. Throws Error(kMismatch) if the round's result is neither on the way nor here:
  // another object of this memory began it and ended before it was awaited.
  template <typename Each>
  RoundReport take(const Each& each) {
    await();
    require_arrived();
    RoundReport report = end();
    if (report.skipped) return report;
    size_t begin = 0;
    for (size_t i = 0; i < offsets_.size(); ++i) {
      const size_t size = place_.tensors[place_.own[i]].count();
      each(offsets_[i], place_.arrived.empty()
                            ? mean_->mean().subspan(begin, size)
                            : std::span<const float>(place_.arrived.subspan(offsets_[i], size)));
      begin += size;
    }
    return report;
  }

 private:
  enum Number : size_t {
    kRounds,  // begun so far
    // The steps; negative while the result is on the way, so that it is missed if it never comes.
    kBegun,
    kSkipped,
    kCode,
    kRank,
    kTensor,  // of the fault, counted from 1; 0: none of them
    kValues,
    kPayloadBytes,
    kSentBytes,
    kReceivedBytes,
    kNumberCount
  };
  static_assert(kNumberCount == kNumbers);
  static std::vector<size_t> offsets_of(const Place& place);
  std::vector<TensorSpec> own_tensors() const;
  double& number(Number which) { return place_.numbers[which]; }
  uint64_t whole(Number which) const { return static_cast<uint64_t>(place_.numbers[which]); }
  void note(const RoundReport& report);
  void require_arrived() const;
  RoundReport end();

  const Place place_;
  const std::vector<size_t> offsets_;  // of its tensors among all parameters
  std::unique_ptr<ReplicaMean> mean_;
  std::span<const float> origin_;
  bool on_the_way_ = false;
  double seconds_ = 0;  // that this rank waited for the round under way
  std::string fault_;   // the stream at fault, which a saved state has as kTensor
};

}  // namespace thinwire
