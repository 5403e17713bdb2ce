// RankSum: gathers the messages of all ranks and adds what they hold.
// SPDX-License-Identifier: Apache-2.0
#include "train/tensor/rank_sum.h"

#include <limits>
#include <span>
#include <utility>

#include "pipeline/boundary_message.h"
#include "train/elapsed_time.h"
#include "train/pipeline/agreed_value.h"
#include "train/tensor_floats.h"

namespace thinwire {
namespace {

// Ranks draw independently, or the errors of their random roundings would add up.
BoundarySpec of_rank(BoundarySpec spec, int whole_rank, uint32_t stream) {
  spec.seed += static_cast<uint64_t>(whole_rank) * 0x9e3779b97f4a7c15;
  spec.sender = static_cast<uint16_t>(whole_rank);
  spec.stream = stream;
  return spec;
}

}  // namespace

RankSum::RankSum(const BoundarySpec& spec, Group& group, int first, uint32_t stream, Store& store)
    : name_(spec.name), group_(group), first_(first) {
  const std::string key = "tensor/" + name_;
  const BoundarySpec own = of_rank(spec, first + group.rank(), stream);
  sender_ = &store.open<BoundarySender>(key + "/sender",
                                        [&] { return agreed(make_boundary_sender(own)); });
  for (int rank = 0; rank < group.size(); ++rank)
    receivers_.push_back(&store.open<BoundaryReceiver>(
        key + "/receiver" + std::to_string(rank),
        [&] { return agreed(make_boundary_receiver(of_rank(spec, first + rank, stream))); }));
  message_.resize(sender_->max_message_size());
}

torch::Tensor RankSum::sum(const torch::Tensor& values, const Visit& visit, SumCounters& counters,
                           bool& mine_finite) {
  const ElapsedTime compressing;
  const Sent sent = sender_->encode(floats_of(values), visit, message_);
  counters.compress += compressing.seconds();
  mine_finite = sent.finite;
  const auto others = static_cast<uint64_t>(group_.size() - 1);
  counters.messages += others;
  counters.values += others * static_cast<uint64_t>(values.numel());
  counters.message_bytes += others * sent.size;
  if (sent.finite) counters.payload_bytes += others * (sent.size - kBodyOffset);

  const ElapsedTime waiting;
  const auto messages =
      group_.all_gather_v(std::span(std::as_const(message_)).first(sent.size), message_.size());
  counters.wait += waiting.seconds();

  const ElapsedTime decompressing;
  torch::Tensor total = torch::empty(values.sizes());
  torch::Tensor next = group_.size() > 1 ? torch::empty(values.sizes()) : torch::Tensor();
  bool finite = true;
  for (size_t rank = 0; rank < messages.size(); ++rank) {
    torch::Tensor& arrived = rank == 0 ? total : next;
    const Status status = receivers_[rank]->decode(messages[rank], visit, floats_of(arrived));
    if (status.code() == ErrorCode::kNonFinite)
      finite = false;
    else if (!status)
      throw Error(status.code(), "from rank " + std::to_string(first_ + static_cast<int>(rank)) +
                                     ": " + status.message());
    else if (rank > 0)
      total.add_(next);
  }
  if (!finite) total.fill_(std::numeric_limits<float>::quiet_NaN());
  counters.decompress += decompressing.seconds();
  return total;
}

void RankSum::commit() {
  sender_->commit();
  for (BoundaryReceiver* receiver : receivers_) receiver->commit();
}

void RankSum::rollback() {
  sender_->rollback();
  for (BoundaryReceiver* receiver : receivers_) receiver->rollback();
}

}  // namespace thinwire
