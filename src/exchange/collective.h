// How one bucket becomes a mean: the ways there are, behind one face.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "exchange/active_stream.h"
#include "exchange/plan.h"
#include "exchange/step_context.h"

namespace thinwire {

// One bucket, step after step. A step is begin, then advance until done. Results lie in the
// streams' result(), with the same bits on every rank, unless the step has a fault. Buffers are
// made once.
class Collective {
 public:
  virtual ~Collective() = default;

  // Compresses the bucket's pieces and starts its messages. REQUIRES: their tensors are open.
  virtual void begin() = 0;

  // Goes as far as it can without waiting; returns whether it got anywhere.
  virtual bool advance() = 0;

  virtual bool done() const noexcept = 0;

  // The step counts, or never happened: for what the collective itself remembers.
  virtual void end(bool /*skipped*/) noexcept {}

  // A transfer that it waits for, for errors; null when it waits for none.
  virtual const Transfer* awaited() const noexcept = 0;

  // Whether that is what another rank makes of what all send it: if a rank stalls, that one is the
  // first to know which.
  virtual bool awaits_owner() const noexcept { return false; }
};

// The streams of a plan, by index.
using Streams = std::vector<std::unique_ptr<ActiveStream>>;

// Tags `tag` and `tag + 1` belong to the bucket.
std::unique_ptr<Collective> make_dense(StepContext& context, const Streams& streams,
                                       const Bucket& bucket, int tag);
std::unique_ptr<Collective> make_gather(StepContext& context, const Streams& streams,
                                        const Bucket& bucket, int tag);
std::unique_ptr<Collective> make_sparse_reduce(StepContext& context, const Streams& streams,
                                               const Bucket& bucket, Store& store, int tag);
std::unique_ptr<Collective> make_library(StepContext& context, const Streams& streams,
                                         const Bucket& bucket);

// All buckets of an exchange, which share what is on its way. Tags 0 and 1 belong to them.
std::vector<std::unique_ptr<Collective>> make_scatter_reduce(StepContext& context,
                                                             const Streams& streams,
                                                             const std::vector<Bucket>& buckets,
                                                             const Terms& terms, Store& store);

// All buckets of an exchange whose codec agrees on positions or factors; offers of several travel
// together while they are below `bucket_bytes`. Bucket i may use tags 2i and 2i + 1.
std::vector<std::unique_ptr<Collective>> make_agreed(StepContext& context, const Streams& streams,
                                                     const std::vector<Bucket>& buckets,
                                                     size_t bucket_bytes);

}  // namespace thinwire
