// AuxiliaryVariables: what the stage behind a cut takes as its input while stages are decoupled,
// one vector for each sample, at one side of the cut.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/aligned.h"
#include "pipeline/estimate_store.h"
#include "thinwire/state.h"

namespace thinwire {

struct AuxiliaryForm {
  std::string name = {};    // of the cut, in errors
  size_t count = 0;         // values of a sample
  double penalty = 1;       // beta
  double rate = 1;          // rho
  size_t budget = 0;        // bytes in memory; 0: all
  std::string folder = {};  // of what is beyond
};

// lambda of a sample, its activation x = F(lambda of the cut before; w) in front of the cut, and g,
// the gradient of the sample's local loss behind the cut with respect to lambda. The penalty method
// adds (beta / 2) |lambda - x|^2 to the sample's loss [Sun et al., arXiv:2009.01462]:
//
//   serial      lambda <- x
//   decoupled   lambda <- (1 - rho) lambda + rho (x - g / beta)
//
// The second is a step of length rho / beta down the gradient of both terms, g + beta (lambda - x);
// with rho = 1 it ends where that gradient, for a constant g, is 0. Both sides of the cut do it
// with the same products and sums, rounded alike on every machine, so that from the same x and g
// they have the same bits.
//
// Changes are seen from commit on. Threads must not share an object.
class AuxiliaryVariables final : public Stateful {
 public:
  explicit AuxiliaryVariables(AuxiliaryForm form);

  // Whether all these samples have one.
  bool hold(std::span<const uint64_t> ids) const;

  // Those of samples, one after the other. REQUIRES: hold(ids), a place for each value.
  void read(std::span<const uint64_t> ids, std::span<float> out) const;

  // Stage changes of samples that no other change of the step has. `gradients` holds scale * g.
  // change returns whether the results are finite; without it the step must be rolled back.
  // REQUIRES: `count` values of each id; for change, hold(ids). Throw Error(kIo) where there is no
  // room for more, Error(kBadOption) where there is no folder for it.
  void set(std::span<const uint64_t> ids, std::span<const float> activations);
  [[nodiscard]] bool change(std::span<const uint64_t> ids, std::span<const float> activations,
                            std::span<const float> gradients, double scale);

  void commit();
  void rollback() noexcept;

  StateArrays save() const override { return store_.save(); }
  Status load(const StateArrays& arrays) override;

 private:
  struct Staged {
    std::vector<uint64_t> ids;
    AlignedVector<float> values;
  };

  Staged& stage(std::span<const uint64_t> ids, size_t values);

  const AuxiliaryForm form_;
  EstimateStore store_;
  std::vector<Staged> staged_;
  size_t fresh_ = 0;             // of those staged, without a place so far
  AlignedVector<float> target_;  // x - g / beta, while a change is staged
};

}  // namespace thinwire
