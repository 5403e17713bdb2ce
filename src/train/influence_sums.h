// Sums of TracInCP over the networks of a run, for all training samples and some samples of
// interest.
//
//   influence(z, z') = sum over networks i of rate_i (gradient of z . gradient of z')
//
// by the last layer's weights. No gradient is stored: memory is that of a block of samples, and of
// one number per pair.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "thinwire/torch.h"

namespace thinwire {

// A value per sample.
struct SampleSums {
  torch::Tensor self;    // double: influence on itself
  torch::Tensor labels;  // int64
  // By the network that was added last.
  torch::Tensor predicted;    // int64
  torch::Tensor probability;  // double: of the label
};

class InfluenceSums {
 public:
  // `block`: samples in one forward pass. The data sets must outlive it.
  InfluenceSums(const Dataset& training, const Dataset& others, std::vector<uint64_t> of,
                uint64_t block);

  // Adds the products of the task's network as it is. Throws as LastLayer does, and kNonFinite
  // where the network's outputs are not finite.
  void add(const Task& task, double rate);

  const SampleSums& training() const noexcept { return training_; }
  const SampleSums& of() const noexcept {
    return of_;
  }  // of the samples of interest, in their order
  // double: of training sample j on sample of interest i in [i, j].
  const torch::Tensor& products() const noexcept { return products_; }

 private:
  const Dataset& training_data_;
  const Dataset& others_;
  const std::vector<uint64_t> ids_;
  const uint64_t block_;
  SampleSums training_, of_;
  torch::Tensor products_;
};

}  // namespace thinwire
