// HandOut: sends the means of a bucket from their holders to the other ranks of their group.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <vector>

#include "exchange/methods/bucket_method.h"
#include "exchange/owner/chunk.h"
#include "exchange/wire/pending.h"

namespace thinwire {

// Each rank sends one message with its chunk to each other one; every rank puts what arrives into
// the streams' result(). Those that have nothing send nothing. All ranks begin the same buckets in
// one order.
class HandOut final : public BucketSteps {
 public:
  // `chunks`, by holder.
  HandOut(StepContext& context, std::vector<Chunk> chunks, int tag)
      : context_(context), chunks_(std::move(chunks)), tag_(tag), peers_(chunks_.size()) {}

  void begin() override;
  bool advance() override;
  bool done() const noexcept override { return done_; }
  const Transfer* awaited() const noexcept override;

 private:
  struct Peer {
    Buffer in;
    Pending sends, receives;
    bool arrived = false;
  };

  StepContext& context_;
  const std::vector<Chunk> chunks_;
  const int tag_;
  Buffer out_;
  std::vector<Peer> peers_;  // by rank
  bool done_ = true;
};

}  // namespace thinwire
