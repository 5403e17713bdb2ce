// Wrong labels, planted in training data for tests and studies.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>

#include "thinwire/torch.h"

namespace thinwire {

// Each sample's label is wrong with probability `share`: it is another class, each as likely. Which
// samples and which classes is a pure function of the seed and the sample's id.
struct WrongLabels {
  double share = 0;
  uint64_t seed = 0;
  int64_t classes = 2;

  // What is added to the label of sample `id`, modulo classes; 0: it stays right.
  int64_t shift(uint64_t id) const noexcept;

  // The label that a sample had before.
  int64_t true_label(uint64_t id, int64_t label) const noexcept {
    const int64_t by = shift(id);
    return by == 0 ? label : (label + classes - by) % classes;
  }
};

// The data with these labels. REQUIRES: targets are one label in [0, classes) for each sample.
std::shared_ptr<const Dataset> plant_wrong_labels(std::shared_ptr<const Dataset> data,
                                                  const WrongLabels& wrong);

}  // namespace thinwire
