// PartExchange: averages the gradients of a rank's weights over several networks, part by part.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/torch.h>

#include <memory>
#include <string>
#include <vector>

#include "thinwire/exchange.h"
#include "thinwire/group.h"
#include "thinwire/store.h"
#include "train/tensor/rank_parts.h"

namespace thinwire {

// Weights that all ranks of a network have whole get the same mean on each of these ranks, to the
// bit. A codec that sees one tensor at a time gives it by itself. One that takes all tensors as one
// vector, or selects among them by one threshold (grouping model or global), makes of each weight
// what follows from all of them, and each rank has others of its own. So common and own weights
// have an exchange each there.
//
// A step counts on all ranks of all networks or on none, though the exchange of one part alone may
// see a fault. Steps are therefore held until all ranks have told each other of their faults. What
// cannot be held (held_options) is exchanged as columns of a grid, whose verdict is that of all
// ranks by itself. Two exchanges that cannot be held may still differ: then the memories of one of
// them have taken the step, alike on all ranks.
class PartExchange {
 public:
  // `all` is the ranks of all networks, `peers` those with this part. Throws what make_exchange
  // throws. Called by all ranks.
  PartExchange(const RankParts& parts, const TensorPlan& plan, Group& all, Group& peers,
               const ExchangeOptions& options, Store& store);

  // In the order of the report's.
  const std::vector<StreamSpec>& streams() const noexcept { return streams_; }

  // Gradients become means over networks; one that is absent counts as zero. All ranks come to the
  // same verdict. With `skips`, the same on all ranks, the step counts nowhere.
  StepReport finish(bool skips);

 private:
  struct Share {  // the weights of one exchange
    std::vector<std::string> names;
    std::vector<torch::Tensor> weights;
    std::unique_ptr<Exchange> exchange;

    void start();
  };

  void agree(StepReport& report) const;

  const TensorPlan plan_;
  Group& all_;
  bool held_;
  std::vector<Share> shares_;
  std::vector<StreamSpec> streams_;
};

}  // namespace thinwire
