// InsideLevel: sums bucket by bucket, and hands out a few buckets at a time.
// SPDX-License-Identifier: Apache-2.0
#include "exchange/levels/inside_level.h"

#include <algorithm>

#include "exchange/levels/hand_out.h"
#include "exchange/methods/dense.h"
#include "exchange/owner/shard.h"
#include "exchange/step/stopwatch.h"

namespace thinwire {

Plan plan_inside(const std::vector<TensorSpec>& tensors, const ExchangeOptions& options) {
  return make_plan(tensors, {.plain_kinds = {},
                             .bucket_bytes = options.bucket_bytes,
                             .sections = {{.grouping = Grouping::kTensor, .divisible = true}}});
}

Streams inside_streams(const Plan& plan, const ExchangeOptions& options, Store& store) {
  ExchangeOptions plain = options;
  plain.norms = false;
  CodingTerms terms;
  terms.feedback = "none";
  Streams streams;
  for (const PlannedStream& planned : plan.streams) {
    PlannedStream stream = planned;
    stream.plain = true;
    streams.push_back(std::make_unique<ActiveStream>(stream, streams.size(), terms, plain, store));
  }
  return streams;
}

InsideLevel::InsideLevel(std::unique_ptr<Group> group, const std::vector<TensorSpec>& tensors,
                         const std::vector<size_t>& holder_of, const ExchangeOptions& options,
                         Store& store, int first_rank)
    : group_(std::move(group)),
      plan_(plan_inside(tensors, options)),
      tensors_(tensors),
      context_{.group = *group_, .tensors = tensors_, .generation = options.generation},
      pieces_(tensors.size()) {
  context_.first = first_rank;
  streams_ = inside_streams(plan_, options, store);
  for (const PlannedStream& planned : plan_.streams)
    holder_of_.push_back(holder_of[planned.tensors.front()]);
  const MethodParts parts{.context = context_,
                          .streams = streams_,
                          .buckets = plan_.buckets,
                          .store = store,
                          .combine = mean_of_ranks(),
                          .bucket_bytes = options.bucket_bytes,
                          .chunk_values = options.chunk_values,
                          .shards = true};
  sums_ = dense_buckets(parts, holder_of_);
  gives_ = steps_of(parts, [&](const Bucket& bucket, int tag) {
    return std::make_unique<HandOut>(
        context_, deal_out(streams_, bucket, context_.ranks(), holder_of_, coders_), tag + 1);
  });
  for (const Bucket& bucket : plan_.buckets)
    for (const Piece& piece : bucket)
      if (holder_of_[piece.stream] == context_.rank())
        ++pieces_[plan_.streams[piece.stream].tensors.front()];
}

void InsideLevel::begin(uint64_t step, bool gives_zeros) {
  context_.call.step = step;
  context_.faults.clear();
  context_.gives_zeros = gives_zeros;
  context_.compress_seconds = 0;
  context_.decompress_seconds = 0;
  context_.attendance.begin();
  missing_ = pieces_;
  given_ = SIZE_MAX;
}

void InsideLevel::begin_bucket(size_t bucket) {
  sums_[bucket]->begin();
  summing_.push_back(bucket);
}

bool InsideLevel::advance() {
  bool moved = false;
  for (const size_t bucket : summing_) {
    moved |= sums_[bucket]->advance();
    if (sums_[bucket]->done()) note_sum(bucket);
  }
  std::erase_if(summing_, [&](size_t bucket) { return sums_[bucket]->done(); });
  for (; given_ < gives_.size() && under_way_.size() < kHandOutWindow; moved = true) {
    gives_[given_]->begin();
    under_way_.push_back(given_++);
  }
  for (const size_t bucket : under_way_) moved |= gives_[bucket]->advance();
  std::erase_if(under_way_, [&](size_t bucket) { return gives_[bucket]->done(); });
  return moved;
}

void InsideLevel::note_sum(size_t bucket) noexcept {
  for (const Piece& piece : plan_.buckets[bucket])
    if (holder_of_[piece.stream] == context_.rank())
      --missing_[plan_.streams[piece.stream].tensors.front()];
}

void InsideLevel::close(bool skipped) {
  for (const auto& stream : streams_) stream->end(context_, skipped);
  const Stopwatch watch(context_.decompress_seconds);
  tensors_.close(skipped);
}

const Transfer* InsideLevel::awaited() const noexcept {
  if (!summing_.empty()) return sums_[summing_.front()]->awaited();
  return under_way_.empty() ? nullptr : gives_[under_way_.front()]->awaited();
}

}  // namespace thinwire
