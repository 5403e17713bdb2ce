// For tests: a plain exchange to compare with: one thread, no messages, a loop over ranks.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "exchange/testing/exchange_testing.h"
#include "exchange/testing/oracle_owners.h"
#include "exchange/testing/oracle_payloads.h"
#include "exchange/testing/oracle_ranks.h"
#include "exchange/testing/oracle_regions.h"

namespace thinwire::testing {

// Each rank's memory and encoder per stream, and the mean as its definition says.
class Oracle {
 public:
  // `streams` as the exchange names them: all, or those of a section. Those of `dense:` carry fp32
  // and remember momentum alone, if the memory of the others is that of an optimiser. With
  // Grouping::kGlobal the others have one threshold.
  Oracle(int ranks, std::vector<TensorSpec> model, std::vector<StreamSpec> streams,
         const std::string& codec, const std::string& feedback, std::string_view method,
         uint64_t seed = 0, std::optional<Grouping> grouping = std::nullopt)
      : method_(method),
        ranks_(ranks, std::move(model), std::move(streams), codec, feedback, method, seed,
               grouping) {}

  // Results are shards: what owners have combined is the mean, as it is.
  void leave_shards() { shards_ = true; }

  // `given[rank][tensor]`; returns the mean. `weights` are those of the ranks, 0 of one that sits
  // out; without them all weigh the same.
  Tensors step(uint64_t number, const std::vector<Tensors>& given,
               std::vector<double> weights = {}) {
    weights.resize(given.size(), 1);
    ranks_.begin(number, std::move(weights));
    Tensors mean(ranks_.model().size());
    for (oracle::Stream& stream : ranks_.streams()) {
      const Values joined = followed(stream, mean_of(stream, given));
      auto at = joined.begin();
      for (const TensorSpec& tensor : stream.spec.tensors) {
        const auto end = at + static_cast<std::ptrdiff_t>(tensor.count());
        mean[ranks_.index_of(tensor)].assign(at, end);
        at = end;
      }
    }
    ranks_.end();
    return mean;
  }

 private:
  // What the ranks' memories make of the mean, the same on all of them; ends the step.
  Values followed(oracle::Stream& stream, const Values& mean) {
    Values of_first;
    const bool agreed = method_ == "low-rank" || method_ == "shared-index";
    for (size_t r = 0; r < stream.feedbacks.size(); ++r) {
      Values own = mean;
      if (!ranks_.takes_part(r)) {
        agreed ? stream.encoders[r]->commit() : stream.encoders[r]->rollback();
        continue;
      }
      stream.feedbacks[r]->receive(own);
      if (of_first.empty()) of_first = own;
      EXPECT_TRUE(same_bits(own, of_first)) << "memory of rank " << r;
      stream.feedbacks[r]->commit();
      stream.encoders[r]->commit();
    }
    return of_first;
  }

  // The library's sum is close to dense.
  Values mean_of(oracle::Stream& stream, const std::vector<Tensors>& given) {
    if (method_ == "gather") return gather_mean(stream, given);
    if (method_ == "scatter-reduce") return oracle::owners_mean(ranks_, stream, given, shards_);
    if (method_ == "sparse-reduce") return oracle::Regions(ranks_, stream).mean(given);
    if (stream.codec->info().agreed != Agreed::kNothing) return agreed_mean(stream, given);
    return dense_mean(stream, given);
  }

  // Rounds, then every rank's encoder has the same to say, which is the mean.
  Values agreed_mean(oracle::Stream& stream, const std::vector<Tensors>& given) {
    const auto sent = oracle::payloads(ranks_, stream, given, oracle::rounds_of(ranks_, stream));
    for (const auto& payload : sent) EXPECT_EQ(payload, sent.front());
    Values mean(stream.spec.count());
    stream.decoder->decode_add(sent.front(), 1.0f, mean).or_throw();
    return mean;
  }

  Values gather_mean(oracle::Stream& stream, const std::vector<Tensors>& given) {
    const bool scaled = stream.codec->info().agreed == Agreed::kScale;
    const auto rounds = scaled ? oracle::rounds_of(ranks_, stream) : std::vector<Round>();
    Values mean(stream.spec.count());
    const auto sent = oracle::payloads(ranks_, stream, given, rounds);
    for (const size_t r : ranks_.participants())
      stream.decoder->decode_add(sent[r], ranks_.share(), mean).or_throw();
    return mean;
  }

  Values dense_mean(oracle::Stream& stream, const std::vector<Tensors>& given) {
    Values sum(stream.spec.count(), -0.0f);
    const auto sent = oracle::payloads(ranks_, stream, given);
    for (const size_t r : ranks_.participants()) {
      Values part(stream.spec.count(), -0.0f);
      stream.decoder->decode_add(sent[r], 1.0f, part).or_throw();
      for (size_t i = 0; i < sum.size(); ++i) sum[i] += part[i];
    }
    for (float& value : sum) value *= ranks_.share();
    if (shards_) return sum;
    std::vector<std::byte> bytes(stream.codec->max_encoded_size(stream.spec));
    const Signal signal{.values = sum, .fresh = {}, .moments = {}};
    const auto encoder = stream.codec->make_encoder(stream.spec);
    bytes.resize(encoder->encode(signal, ranks_.call(ranks_.size()), bytes, {}).size);
    Values mean(sum.size(), -0.0f);
    stream.decoder->decode_add(bytes, 1.0f, mean).or_throw();
    return mean;
  }

  std::string_view method_;
  oracle::Ranks ranks_;
  bool shards_ = false;
};

}  // namespace thinwire::testing
