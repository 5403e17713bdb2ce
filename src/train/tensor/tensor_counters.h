// TensorCounters: counters that tensor-parallel ranks exchange at the end of a step, and sums.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "thinwire/exchange.h"
#include "thinwire/group.h"
#include "thinwire/stream.h"
#include "thinwire/trainer.h"
#include "train/tensor/rank_parts.h"
#include "train/tensor/trained_sums.h"

namespace thinwire {

// Of one rank in one step, beside its sums.
struct RankCounters {
  uint64_t sent_bytes = 0, dense_bytes = 0;  // the exchange's, and of what is summed uncompressed
  uint64_t samples = 0;                      // whose loss this is the sum of
  double loss = 0;
  double seconds = 0;
};

class TensorCounters {
 public:
  // `exchange` are the streams of the exchange among replicas; counted if there are several.
  TensorCounters(const TensorPlan& plan, const Task& task, const std::vector<std::string>& pairs,
                 const std::vector<SumShapes>& shapes, const StepShape& step,
                 const std::vector<StreamSpec>& exchange);

  // Both directions of each pair, then the exchange's.
  const std::vector<StreamSpec>& streams() const noexcept { return streams_; }

  struct Sum {
    PipelineReport pairs;  // under the names of pairs
    double loss = 0;
  };
  // Puts into `report`, which is the exchange's, what was summed over ranks. Called by all ranks.
  Sum gather(Group& group, const RankCounters& mine, const std::vector<SumCounters>& sums,
             StepReport& report) const;

 private:
  const TensorPlan& plan_;
  std::vector<std::string> names_;
  std::vector<uint64_t> whole_, coded_;  // values of a sample: by direction, as the sums
  std::vector<StreamSpec> streams_;
};

}  // namespace thinwire
