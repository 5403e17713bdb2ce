// ReplicaMean: sends differences through an exchange and returns the mean.
// SPDX-License-Identifier: Apache-2.0
#include "sync/replica_mean.h"

#include <algorithm>
#include <utility>

#include "exchange/layout/plan.h"
#include "kernel/memory_passes.h"

namespace thinwire {
namespace {

// Memories of parameters are not those of gradients under the same name.
std::vector<TensorSpec> renamed(std::vector<TensorSpec> tensors) {
  for (TensorSpec& tensor : tensors) tensor.name = "sync/" + tensor.name;
  return tensors;
}

std::vector<size_t> one_after_another(const std::vector<TensorSpec>& tensors) {
  std::vector<size_t> places;
  size_t end = 0;
  for (const TensorSpec& tensor : tensors) {
    places.push_back(end);
    end += tensor.count();
  }
  return places;
}

}  // namespace

ExchangeOptions replica_exchange(const SynchroniserOptions& options, const std::string& feedback,
                                 uint64_t rounds) {
  ExchangeOptions made;
  made.codec = options.codec;
  made.feedback = options.feedback;
  if (options.feedback == "auto" && !is_lossless(options.codec)) made.feedback = feedback;
  made.method = options.exchange;
  made.first_step = rounds;
  made.seed = options.seed;
  made.max_skipped = 0;  // rules count for themselves
  made.generation = options.generation;
  made.norms = false;
  return made;
}

ReplicaMean::ReplicaMean(Group& group, Store& store, const std::vector<TensorSpec>& tensors)
    : ReplicaMean(group, store, tensors, {}, "none", 0) {}

ReplicaMean::ReplicaMean(Group& group, Store& store, const std::vector<TensorSpec>& tensors,
                         const SynchroniserOptions& options, const std::string& feedback,
                         uint64_t rounds, std::vector<size_t> places)
    : tensors_(renamed(tensors)),
      places_(places.empty() ? one_after_another(tensors) : std::move(places)),
      mean_(total_count(tensors)),
      exchange_(
          make_exchange(group, store, tensors_, replica_exchange(options, feedback, rounds))) {}

StepReport ReplicaMean::form(std::span<const float> values, std::span<const float> origin,
                             bool fit) {
  begin(values, origin, fit);
  return end(origin);
}

void ReplicaMean::begin(std::span<const float> values, std::span<const float> origin, bool fit) {
  if (!fit) exchange_->abstain(Abstention::kSkipsStep);

  size_t end = mean_.size();
  for (size_t i = tensors_.size(); i-- > 0;) {  // in the order in which buckets travel
    const size_t size = tensors_[i].count();
    end -= size;
    const auto sent = std::span(mean_).subspan(end, size);
    const auto own = values.subspan(places_[i], size);
    if (origin.empty())
      std::copy(own.begin(), own.end(), sent.begin());
    else
      kernel::weighted_sum(1, own, -1, origin.subspan(places_[i], size), sent);
    exchange_->start(i, {.data = sent.data(), .count = size});
  }
}

StepReport ReplicaMean::end(std::span<const float> origin) {
  const StepReport report = exchange_->finish();
  if (report.skipped || origin.empty()) return report;
  size_t begin = 0;
  for (size_t i = 0; i < tensors_.size(); ++i) {
    const size_t size = tensors_[i].count();
    const auto mean = std::span(mean_).subspan(begin, size);
    kernel::weighted_sum(1, origin.subspan(places_[i], size), 1, mean, mean);
    begin += size;
  }
  return report;
}

RoundReport round_report(const StepReport& exchange, uint64_t round, uint64_t step) {
  RoundReport report;
  report.round = round;
  report.step = step;
  report.skipped = exchange.skipped;
  report.fault = exchange.fault;
  for (const StreamCounters& stream : exchange.streams) {
    report.values += stream.values;
    report.payload_bytes += stream.payload_bytes;
  }
  report.sent_bytes = exchange.sent_bytes;
  report.received_bytes = exchange.received_bytes;
  report.seconds = exchange.wait_seconds;
  return report;
}

}  // namespace thinwire
