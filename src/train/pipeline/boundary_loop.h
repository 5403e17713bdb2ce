// BoundaryLoop: both ends of a boundary, with nothing between them, to test with compression on.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/torch.h>

#include <cstddef>
#include <memory>
#include <vector>

#include "thinwire/boundary.h"

namespace thinwire {

// Leaves no trace in the ends. For one thread.
class BoundaryLoop {
 public:
  // Throws Error for a spec that is wrong.
  explicit BoundaryLoop(const BoundarySpec& spec);

  // What arrives of the values; the values themselves if they are not finite, to be judged as what
  // they are.
  torch::Tensor pass(const torch::Tensor& values);

 private:
  std::unique_ptr<BoundarySender> sender_;
  std::unique_ptr<BoundaryReceiver> receiver_;
  std::vector<std::byte> message_;
  Visit visit_;
};

}  // namespace thinwire
