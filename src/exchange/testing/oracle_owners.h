// For tests: the mean of method scatter-reduce, shard by shard.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <span>
#include <vector>

#include "exchange/testing/oracle_ranks.h"

namespace thinwire::testing::oracle {

// A shard of a stream, encoded as a whole.
class Shard {
 public:
  Shard(const Ranks& ranks, const Stream& stream, size_t begin, size_t end)
      : ranks_(ranks),
        codec_(*stream.codec),
        begin_(begin),
        spec_(single_tensor({.name = stream.spec.name, .shape = {end - begin}})) {}

  // What `values` decode to. `rest` receives what the codec loses.
  Values code(std::span<const float> values, size_t salt, std::span<float> rest) const {
    std::vector<std::byte> bytes(codec_.max_encoded_size(spec_));
    codec_.make_encoder(spec_)->encode({.values = values, .fresh = {}, .moments = {}},
                                       ranks_.call(salt, begin_), bytes, rest);
    Values decoded(values.size(), -0.0f);
    codec_.make_decoder(spec_)->decode_add(bytes, 1.0f, decoded).or_throw();
    return decoded;
  }

 private:
  const Ranks& ranks_;
  const Codec& codec_;
  size_t begin_;
  StreamSpec spec_;
};

// What an owner does not own itself is as it is decoded. With `shards` the mean is what owners
// combined.
inline Values owners_mean(Ranks& ranks, Stream& stream, const std::vector<Tensors>& given,
                          bool shards) {
  const size_t count = stream.spec.count(), block = stream.codec->info().block, n = ranks.size();
  std::vector<Values> gradients, signals(n);
  for (size_t r = 0; r < n; ++r) {
    gradients.push_back(ranks.weighed(stream, given, r));
    if (!ranks.takes_part(r)) continue;
    const Signal signal = stream.feedbacks[r]->prepare(gradients[r], ranks.call(r));
    signals[r].assign(signal.values.begin(), signal.values.end());
  }
  const size_t blocks = (count + block - 1) / block;
  Values mean(count, -0.0f);
  for (size_t j = 0; j < n; ++j) {
    const size_t begin = std::min(count, blocks * j / n * block);
    const size_t end = std::min(count, blocks * (j + 1) / n * block);
    if (begin == end) continue;
    const size_t owner = (j + ranks.place_of(stream)) % n;
    const Shard shard(ranks, stream, begin, end);
    Values sum;
    for (const size_t r : ranks.participants()) {
      const auto values = std::span(signals[r]).subspan(begin, end - begin);
      std::span<float> rest = stream.feedbacks[r]->rest();
      if (!rest.empty()) rest = rest.subspan(begin, end - begin);
      const bool as_it_is = r == owner && !stream.codec->info().vote;
      const Values part =
          as_it_is ? Values(values.begin(), values.end()) : shard.code(values, r, rest);
      if (as_it_is) std::fill(rest.begin(), rest.end(), 0.0f);
      stream.feedbacks[r]->sent(gradients[r], begin, end - begin);
      if (sum.empty())
        sum = part;
      else
        for (size_t i = 0; i < sum.size(); ++i) sum[i] += part[i];
    }
    for (float& value : sum) value *= ranks.share();
    std::span<float> owed = stream.owed;
    if (!shards) {
      if (!owed.empty()) owed = owed.subspan(begin, end - begin);
      for (size_t i = 0; i < owed.size(); ++i) sum[i] += owed[i];
      sum = shard.code(sum, owner + n, owed);
    }
    std::copy(sum.begin(), sum.end(), mean.begin() + static_cast<std::ptrdiff_t>(begin));
  }
  return mean;
}

}  // namespace thinwire::testing::oracle
