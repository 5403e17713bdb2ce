// PartExchange: one exchange or two for the weights of a rank, and one verdict on all ranks.
// SPDX-License-Identifier: Apache-2.0
#include "train/tensor/part_exchange.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <span>
#include <utility>

#include "sync/part_store.h"
#include "thinwire/settled.h"
#include "train/describe.h"
#include "train/held_options.h"
#include "train/run_device.h"

namespace thinwire {
namespace {

// What a rank tells the others of its exchanges.
struct Found {
  int32_t rank = -1;  // at fault, among all ranks
  uint8_t code = 0;
  uint8_t skipped = 0;
};

// Of one step, in two exchanges at the same time.
void add(StepReport& to, StepReport&& from) {
  if (from.skipped && !to.skipped) to.fault = std::move(from.fault);
  to.skipped |= from.skipped;
  to.dense_bytes += from.dense_bytes;
  to.sent_bytes += from.sent_bytes;
  to.between_bytes += from.between_bytes;
  to.received_bytes += from.received_bytes;
  to.compress_seconds += from.compress_seconds;
  to.decompress_seconds += from.decompress_seconds;
  to.wire_seconds = std::max(to.wire_seconds, from.wire_seconds);
  to.wait_seconds += from.wait_seconds;
  std::ranges::move(from.streams, std::back_inserter(to.streams));
}

// Of exchanges side by side each has a stream of all its tensors, called "model". Rules of one
// exchange name theirs by the first tensor, too.
StreamSpec renamed(StreamSpec stream) {
  if (stream.name == "model") stream.name += ":" + stream.tensors.front().name;
  return stream;
}

// Whether what a codec makes of a tensor depends on other tensors.
bool groups_tensors(const ExchangeOptions& options) {
  Result<SettledOptions> settled = settled_options(options);
  return settled && settled.value().grouping != Grouping::kTensor;
}

// Seeds differ, because streams of different exchanges have the same numbers, which codecs draw by.
void set_apart(ExchangeOptions& options, bool own) {
  if (own) ++options.seed;
  if (options.observe)
    options.observe = [observe = options.observe](const StreamSpec& stream, const Signal& signal,
                                                  const Call& call) {
      observe(renamed(stream), signal, call);
    };
}

}  // namespace

PartExchange::PartExchange(const RankParts& parts, const TensorPlan& plan, Group& all, Group& peers,
                           const ExchangeOptions& options, Store& store)
    : plan_(plan), all_(all) {
  ExchangeOptions made = held_options(options);
  held_ = made.hold;
  if (!held_) made.columns = static_cast<int>(plan.ranks);
  Group& group = held_ ? peers : all;

  // A network of one rank has no common weights that could differ.
  const bool apart = plan.ranks > 1 && groups_tensors(options);
  const std::vector<torch::Tensor> own_weights = parts.own_weights();
  for (const bool own : {false, true}) {
    if (own && !apart) break;
    Share share;
    std::vector<TensorSpec> specs;
    for (const TrainableParameter& one : trainable_parameters(parts.module())) {
      const bool is_own = std::ranges::any_of(
          own_weights, [&](const torch::Tensor& weight) { return weight.is_same(one.tensor); });
      if (apart && is_own != own) continue;
      share.names.push_back(one.spec.name);
      share.weights.push_back(one.tensor);
      specs.push_back(one.spec);
    }
    if (specs.empty()) continue;  // a network may have no other weights than split ones
    ExchangeOptions of_share = made;
    Store* memories = &store;
    if (apart) {
      set_apart(of_share, own);
      memories = &store
                      .open<PartStore>(own ? "tensor/own weights" : "tensor/common weights",
                                       [] { return std::make_unique<PartStore>(); })
                      .store();
    }
    share.exchange = make_exchange(group, *memories, std::move(specs), of_share);
    for (const StreamSpec& stream : share.exchange->streams())
      streams_.push_back(apart ? renamed(stream) : stream);
    shares_.push_back(std::move(share));
  }
}

void PartExchange::Share::start() {
  for (size_t i = 0; i < weights.size(); ++i) {
    torch::Tensor& gradient = weights[i].mutable_grad();
    if (!gradient.defined()) gradient = torch::zeros_like(weights[i]);
    if (gradient.layout() != torch::kStrided)
      throw Error(ErrorCode::kUnsupported, "gradient of '" + names[i] + "' is sparse");
    // Means are written over it, and memory that it shares may hold another gradient.
    if (!gradient.is_contiguous() || gradient.storage().use_count() > 1)
      gradient = gradient.clone(at::MemoryFormat::Contiguous);
    const bool bf16 = gradient.scalar_type() == torch::kBFloat16;
    exchange->start(i, view_of(gradient, bf16 ? DType::kBFloat16 : DType::kFloat32));
  }
}

StepReport PartExchange::finish(bool skips) {
  std::vector<torch::Tensor> absent;  // of one network: as without ranks, the optimiser skips them
  for (Share& share : shares_) {
    for (const torch::Tensor& weight : share.weights)
      if (plan_.replicas == 1 && !weight.grad().defined()) absent.push_back(weight);
    if (skips) share.exchange->abstain(Abstention::kSkipsStep);
    share.start();
  }
  StepReport report;
  for (Share& share : shares_) add(report, share.exchange->finish());
  for (const torch::Tensor& weight : absent) weight.mutable_grad().reset();
  if (!skips && held_) agree(report);  // columns came to one verdict
  for (const Share& share : shares_) share.exchange->settle(!report.skipped);  // if it is held
  return report;
}

// Even with one network: the memory of one part may overflow by itself.
void PartExchange::agree(StepReport& report) const {
  Found mine{.code = static_cast<uint8_t>(report.fault.code), .skipped = report.skipped};
  mine.rank = report.fault.rank < 0 ? all_.rank()
                                    : report.fault.rank * static_cast<int>(plan_.ranks) +
                                          static_cast<int>(plan_.rank);
  std::vector<Found> found(static_cast<size_t>(all_.size()));
  all_.all_gather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(found)));
  const auto bad = std::ranges::find_if(found, [](const Found& one) { return one.skipped != 0; });
  if (bad == found.end()) return;
  report.skipped = true;
  report.fault = {.code = static_cast<ErrorCode>(bad->code),
                  .rank = bad->rank,
                  .stream = "exchange among replicas"};
}

}  // namespace thinwire
