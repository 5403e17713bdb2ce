// For tests: a plain exchange to compare with: one thread, no messages, a loop over ranks.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "codec/global_codec.h"
#include "codec/sparse_payload.h"
#include "exchange/engine/global_threshold.h"
#include "exchange/engine/terms.h"
#include "exchange/testing/exchange_testing.h"
#include "thinwire/codec.h"
#include "thinwire/feedback.h"

namespace thinwire::testing {

// Each rank's memory and encoder per stream, and the mean as its definition says.
class Oracle {
 public:
  // `streams` as the exchange names them: all, or those of a section. Those of `dense:` carry fp32 and
  // remember momentum alone, if the memory of the others is that of an optimiser. With Grouping::kGlobal
  // the others have one threshold.
  Oracle(int ranks, std::vector<TensorSpec> model, std::vector<StreamSpec> streams,
         const std::string& codec, const std::string& feedback, std::string_view method,
         uint64_t seed = 0, std::optional<Grouping> grouping = std::nullopt)
      : ranks_(ranks), model_(std::move(model)), method_(method), seed_(seed) {
    if (grouping == Grouping::kGlobal) thresholds_.resize(static_cast<size_t>(ranks));
    size_t target = 0;
    for (size_t i = 0; i < model_.size(); ++i) index_[model_[i].name] = i;
    std::set<size_t> own;
    for (const StreamSpec& spec : streams)
      for (const TensorSpec& tensor : spec.tensors) own.insert(index_.at(tensor.name));
    for (const size_t i : own) place_.emplace(model_[i].name, place_.size());
    const auto [entry, options] = find_feedback(feedback).value();
    const std::string beside = entry->plain ? entry->plain(options) : "none";
    for (StreamSpec& spec : streams) {
      const bool plain = spec.name.starts_with("dense:");
      Stream stream;
      stream.codec = make_codec(plain ? "fp32" : codec).value().codec;
      stream.has_threshold = !plain && !thresholds_.empty();
      if (stream.has_threshold) {
        stream.codec = with_global_threshold(stream.codec);
        target += stream.codec->target(spec);
      }
      stream.decoder = stream.codec->make_decoder(spec);
      for (int rank = 0; rank < ranks; ++rank) {
        stream.feedbacks.push_back(make_feedback(plain ? beside : feedback, spec).value());
        stream.encoders.push_back(stream.codec->make_encoder(spec));
      }
      const bool remembers =
          !stream.codec->info().unbiased && !stream.feedbacks.front()->rest().empty();
      if ((remembers && method == "scatter-reduce") || (!plain && method == "sparse-reduce"))
        stream.owed.resize(spec.count());
      stream.spec = std::move(spec);
      streams_.push_back(std::move(stream));
    }
    for (GlobalThreshold& threshold : thresholds_) threshold.aim(target);
  }

  // Results are shards: what owners have combined is the mean, as it is.
  void leave_shards() { shards_ = true; }

  // `given[rank][tensor]`; returns the mean. `weights` are those of the ranks, 0 of one that sits out; without
  // them all weigh the same.
  Tensors step(uint64_t number, const std::vector<Tensors>& given,
               std::vector<double> weights = {}) {
    weights.resize(given.size(), 1);
    weights_ = weights;
    Tensors mean(model_.size());
    for (Stream& stream : streams_) {
      const Values joined = followed(stream, mean_of(stream, number, given));
      size_t at = 0;
      for (const TensorSpec& tensor : stream.spec.tensors) {
        Values& to = mean[index_.at(tensor.name)];
        to.assign(joined.begin() + static_cast<std::ptrdiff_t>(at),
                  joined.begin() + static_cast<std::ptrdiff_t>(at + tensor.count()));
        at += tensor.count();
      }
    }
    for (GlobalThreshold& threshold : thresholds_) threshold.commit();
    return mean;
  }

 private:
  struct Stream {
    StreamSpec spec;
    std::shared_ptr<const Codec> codec;
    bool has_threshold = false;
    std::unique_ptr<const Decoder> decoder;
    std::vector<std::unique_ptr<Feedback>> feedbacks;
    std::vector<std::unique_ptr<Encoder>> encoders;
    Values owed;  // by the owners, of scatter-reduce; empty: nothing
  };

  Values joined(const Stream& stream, const Tensors& given) const {
    Values all;
    for (const TensorSpec& tensor : stream.spec.tensors) {
      const Values& part = given[index_.at(tensor.name)];
      all.insert(all.end(), part.begin(), part.end());
    }
    return all;
  }

  // What is given, times the rank's share of all weights times n.
  Values weighed(const Stream& stream, const std::vector<Tensors>& given, size_t rank) const {
    Values all = joined(stream, given[rank]);
    const double sum = std::accumulate(weights_.begin(), weights_.end(), 0.0);
    const auto factor = static_cast<float>(ranks_ * (weights_[rank] / sum));
    for (float& value : all) value = factor == 0 ? 0 : factor == 1 ? value : value * factor;
    return all;
  }
  bool takes_part(size_t rank) const { return weights_[rank] > 0; }
  std::vector<size_t> participants() const {
    std::vector<size_t> ranks;
    for (size_t r = 0; r < weights_.size(); ++r)
      if (takes_part(r)) ranks.push_back(r);
    return ranks;
  }

  Call call_of(int salt, uint64_t number, size_t offset = 0) const {
    return {.seed = seed_,
            .step = number,
            .salt = static_cast<uint64_t>(salt),
            .offset = offset,
            .ranks = static_cast<uint64_t>(ranks_)};
  }

  // What the rank's encoder makes of a signal.
  size_t encode(Stream& stream, size_t rank, const Signal& signal, Call call,
                std::span<std::byte> bytes, std::span<float> rest) {
    if (!stream.has_threshold) return stream.encoders[rank]->encode(signal, call, bytes, rest).size;
    const size_t first = index_.at(stream.spec.tensors.front().name);
    call.quota =
        thresholds_[rank].offer(signal.values, stream.codec->target(stream.spec), call, first);
    const Encoded encoded = stream.encoders[rank]->encode(signal, call, bytes, rest);
    thresholds_[rank].sent(encoded.kept);
    return encoded.size;
  }

  // What every rank sends in this step, after `rounds` if there are any; nothing from one that sits out, unless
  // ranks agree on what they say.
  std::vector<std::vector<std::byte>> payloads(Stream& stream, uint64_t number,
                                               const std::vector<Tensors>& given,
                                               const std::vector<Round>& rounds = {}) {
    std::vector<Values> gradients;
    std::vector<Signal> signals;
    for (size_t r = 0; r < given.size(); ++r) gradients.push_back(weighed(stream, given, r));
    for (size_t r = 0; r < given.size(); ++r)
      signals.push_back(takes_part(r) ? stream.feedbacks[r]->prepare(
                                            gradients[r], call_of(static_cast<int>(r), number))
                                      : Signal{.values = gradients[r]});
    make_rounds(stream, number, signals, rounds);
    std::vector<std::vector<std::byte>> all;
    for (size_t r = 0; r < given.size(); ++r) {
      std::vector<std::byte> bytes(stream.codec->max_encoded_size(stream.spec));
      const Call call = call_of(static_cast<int>(r), number);
      if (!takes_part(r)) {
        const bool says = !rounds.empty() && stream.codec->info().agreed != Agreed::kScale;
        bytes.resize(says ? stream.encoders[r]->encode(signals[r], call, bytes, {}).size : 0);
        all.push_back(std::move(bytes));
        continue;
      }
      const std::span<float> rest = stream.feedbacks[r]->rest();
      bytes.resize(encode(stream, r, signals[r], call, bytes, rest));
      stream.feedbacks[r]->sent(gradients[r], 0, gradients[r].size());
      all.push_back(std::move(bytes));
    }
    return all;
  }

  // What the ranks' memories make of the mean, the same on all of them; ends the step.
  Values followed(Stream& stream, const Values& mean) {
    Values of_first;
    const bool agreed = method_ == "low-rank" || method_ == "shared-index";
    for (size_t r = 0; r < stream.feedbacks.size(); ++r) {
      Values own = mean;
      if (!takes_part(r)) {
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
  Values mean_of(Stream& stream, uint64_t number, const std::vector<Tensors>& given) {
    if (method_ == "gather") return gather_mean(stream, number, given);
    if (method_ == "scatter-reduce") return owners_mean(stream, number, given);
    if (method_ == "sparse-reduce") return largest_mean(stream, number, given);
    if (stream.codec->info().agreed != Agreed::kNothing) return agreed_mean(stream, number, given);
    return dense_mean(stream, number, given);
  }

  // What the parts of all ranks come to: floats added or compared in rank order, or one rank's bytes.
  std::vector<std::byte> combined(const Round& round,
                                  const std::vector<std::vector<std::byte>>& parts,
                                  uint64_t number) const {
    const auto ranks = participants();
    if (round.combine == Round::Combine::kFromRoot) return parts[ranks[number % ranks.size()]];
    Values result(round.size / sizeof(float));
    for (size_t i = 0; i < result.size(); ++i)
      for (const size_t r : ranks) {
        float value;
        std::memcpy(&value, parts[r].data() + i * sizeof value, sizeof value);
        result[i] = r == ranks.front()                      ? value
                    : round.combine == Round::Combine::kMax ? std::max(result[i], value)
                                                            : result[i] + value;
      }
    if (round.combine == Round::Combine::kMean)
      for (float& value : result) value *= 1.0f / static_cast<float>(parts.size());
    const auto bytes = std::as_bytes(std::span(result));
    return {bytes.begin(), bytes.end()};
  }

  void make_rounds(Stream& stream, uint64_t number, const std::vector<Signal>& signals,
                   const std::vector<Round>& rounds) {
    for (size_t i = 0; i < rounds.size(); ++i) {
      std::vector<std::vector<std::byte>> parts(signals.size());
      for (size_t r = 0; r < signals.size(); ++r) {
        const auto ranks = participants();
        const bool asked =
            rounds[i].combine != Round::Combine::kFromRoot || r == ranks[number % ranks.size()];
        if (!asked) continue;
        parts[r].resize(rounds[i].size);
        const Call call = call_of(static_cast<int>(r), number);
        parts[r].resize(stream.encoders[r]->offer(i, signals[r], call, parts[r]));
      }
      const auto result = combined(rounds[i], parts, number);
      for (const auto& encoder : stream.encoders) EXPECT_TRUE(encoder->adopt(i, result).is_ok());
    }
  }

  std::vector<Round> rounds_of(const Stream& stream, uint64_t number) const {
    return stream.codec->rounds(stream.spec, number % 2 == 1);
  }

  // Rounds, then every rank's encoder has the same to say, which is the mean.
  Values agreed_mean(Stream& stream, uint64_t number, const std::vector<Tensors>& given) {
    const auto sent = payloads(stream, number, given, rounds_of(stream, number));
    for (const auto& payload : sent) EXPECT_EQ(payload, sent.front());
    Values mean(stream.spec.count());
    stream.decoder->decode_add(sent.front(), 1.0f, mean).or_throw();
    return mean;
  }

  Values gather_mean(Stream& stream, uint64_t number, const std::vector<Tensors>& given) {
    const bool scaled = stream.codec->info().agreed == Agreed::kScale;
    const auto rounds = scaled ? rounds_of(stream, number) : std::vector<Round>();
    Values mean(stream.spec.count());
    const auto sent = payloads(stream, number, given, rounds);
    for (const size_t r : participants())
      stream.decoder->decode_add(sent[r], 1.0f / static_cast<float>(ranks_), mean).or_throw();
    return mean;
  }

  Values dense_mean(Stream& stream, uint64_t number, const std::vector<Tensors>& given) {
    Values sum(stream.spec.count(), -0.0f);
    const auto sent = payloads(stream, number, given);
    for (const size_t r : participants()) {
      const auto& payload = sent[r];
      Values part(stream.spec.count(), -0.0f);
      stream.decoder->decode_add(payload, 1.0f, part).or_throw();
      for (size_t i = 0; i < sum.size(); ++i) sum[i] += part[i];
    }
    for (float& value : sum) value *= 1.0f / static_cast<float>(ranks_);
    if (shards_) return sum;
    std::vector<std::byte> bytes(stream.codec->max_encoded_size(stream.spec));
    const auto encoder = stream.codec->make_encoder(stream.spec);
    bytes.resize(encoder
                     ->encode({.values = sum, .fresh = {}, .moments = {}}, call_of(ranks_, number),
                              bytes, {})
                     .size);
    Values mean(sum.size(), -0.0f);
    stream.decoder->decode_add(bytes, 1.0f, mean).or_throw();
    return mean;
  }

  // Shard by shard, each encoded as a whole: what an owner does not own itself is as it is decoded.
  Values owners_mean(Stream& stream, uint64_t number, const std::vector<Tensors>& given) {
    const size_t count = stream.spec.count(), block = stream.codec->info().block;
    const auto n = static_cast<size_t>(ranks_);
    const size_t first = place_.at(stream.spec.tensors.front().name);
    std::vector<Values> gradients;
    std::vector<Values> signals;
    for (size_t r = 0; r < n; ++r) {
      gradients.push_back(weighed(stream, given, r));
      signals.emplace_back();
      if (!takes_part(r)) continue;
      const Signal signal =
          stream.feedbacks[r]->prepare(gradients[r], call_of(static_cast<int>(r), number));
      signals.back().assign(signal.values.begin(), signal.values.end());
    }
    Values mean(count, -0.0f);
    for (size_t j = 0; j < n; ++j) {
      const size_t blocks = (count + block - 1) / block;
      const size_t begin = std::min(count, blocks * j / n * block);
      const size_t end = std::min(count, blocks * (j + 1) / n * block);
      if (begin == end) continue;
      const size_t owner = (j + first) % n;
      const StreamSpec spec = single_tensor({.name = stream.spec.name, .shape = {end - begin}});
      const auto decoder = stream.codec->make_decoder(spec);
      const auto code = [&](std::span<const float> values, int salt, std::span<float> rest) {
        std::vector<std::byte> bytes(stream.codec->max_encoded_size(spec));
        stream.codec->make_encoder(spec)->encode({.values = values, .fresh = {}, .moments = {}},
                                                 call_of(salt, number, begin), bytes, rest);
        Values decoded(values.size(), -0.0f);
        decoder->decode_add(bytes, 1.0f, decoded).or_throw();
        return decoded;
      };
      Values sum;
      for (const size_t r : participants()) {
        const auto values = std::span(signals[r]).subspan(begin, end - begin);
        std::span<float> rest = stream.feedbacks[r]->rest();
        if (!rest.empty()) rest = rest.subspan(begin, end - begin);
        const bool as_it_is = r == owner && !stream.codec->info().vote;
        const Values part = as_it_is ? Values(values.begin(), values.end())
                                     : code(values, static_cast<int>(r), rest);
        if (as_it_is) std::fill(rest.begin(), rest.end(), 0.0f);
        stream.feedbacks[r]->sent(gradients[r], begin, end - begin);
        if (sum.empty())
          sum = part;
        else
          for (size_t i = 0; i < sum.size(); ++i) sum[i] += part[i];
      }
      for (float& value : sum) value *= 1.0f / static_cast<float>(ranks_);
      if (shards_) {
        std::copy(sum.begin(), sum.end(), mean.begin() + static_cast<std::ptrdiff_t>(begin));
        continue;
      }
      std::span<float> owed = stream.owed;
      if (!owed.empty()) owed = owed.subspan(begin, end - begin);
      for (size_t i = 0; i < owed.size(); ++i) sum[i] += owed[i];
      const Values decoded = code(sum, static_cast<int>(owner) + ranks_, owed);
      std::copy(decoded.begin(), decoded.end(), mean.begin() + static_cast<std::ptrdiff_t>(begin));
    }
    return mean;
  }

  // Stripes of 64 values in groups of m, region by region: what docs/collectives.md says of
  // sparse-reduce, in vectors as long as the stream.
  Values largest_mean(Stream& stream, uint64_t number, const std::vector<Tensors>& given) {
    const size_t count = stream.spec.count();
    const auto n = static_cast<size_t>(ranks_);
    const size_t m = std::clamp<size_t>(count / 512, 1, n);
    const size_t first = place_.at(stream.spec.tensors.front().name);
    const size_t share = (stream.codec->max_kept(stream.spec) + m - 1) / m;
    std::vector<std::vector<uint32_t>> regions(m);
    for (uint32_t p = 0; p < count; ++p) {
      const size_t group = p / 64 / m;
      const auto turn = static_cast<uint32_t>(group * 0x9E3779B97F4A7C15u >> 32);
      regions[(p / 64 % m + turn % m) % m].push_back(p);
    }
    std::vector<size_t> arrived(m);
    Values mean(count);
    for (const size_t r : participants()) {
      const Values gradient = weighed(stream, given, r);
      const Call call = call_of(static_cast<int>(r), number);
      const Signal signal = stream.feedbacks[r]->prepare(gradient, call);
      const std::span<float> rest = stream.feedbacks[r]->rest();
      std::vector<std::byte> bytes(stream.codec->max_encoded_size(stream.spec));
      bytes.resize(encode(stream, r, signal, call, bytes, rest));
      const auto entries = entries_of(stream, bytes, signal.values);
      for (size_t j = 0; j < m; ++j) {
        std::vector<std::pair<uint32_t, float>> part;
        for (const uint32_t p : regions[j])
          if (const auto entry = entries.find(p); entry != entries.end()) part.push_back(*entry);
        const auto left_out = largest(part, std::min(regions[j].size(), 2 * share + 16));
        for (const auto& [p, value] : left_out)
          if (!rest.empty()) rest[p] += value;
        if ((j + first) % n != r) code(stream, regions[j].size(), part, rest);
        for (const auto& [p, value] : part) mean[p] += value;
        arrived[j] += part.size();
      }
      stream.feedbacks[r]->sent(gradient, 0, count);
    }
    for (float& value : mean) value *= 1.0f / static_cast<float>(ranks_);
    for (size_t i = 0; i < stream.owed.size(); ++i) mean[i] += stream.owed[i];
    Values result(count);
    for (size_t j = 0; j < m; ++j) {
      std::vector<std::pair<uint32_t, float>> all;
      for (const uint32_t p : regions[j]) all.push_back({p, mean[p]});
      const size_t size = regions[j].size();
      const size_t senders = participants().size();
      const size_t most =
          std::min((arrived[j] + senders - 1) / senders, std::min(size, 2 * share + 16));
      auto handed_out = all;
      if (!is_dense(stream, size, most)) {
        largest(handed_out, most);
        std::erase_if(handed_out, [](const auto& entry) { return entry.second == 0; });
      }
      std::span<float> owed = stream.owed;
      for (size_t i = 0; i < all.size() && !owed.empty(); ++i) owed[all[i].first] = all[i].second;
      for (const auto& [p, value] : handed_out)
        if (!owed.empty()) owed[p] = 0;
      code(stream, size, handed_out, owed, is_dense(stream, size, most));
      for (const auto& [p, value] : handed_out) result[p] = value;
    }
    return result;
  }

  using Entries = std::vector<std::pair<uint32_t, float>>;

  // What a payload keeps; of a plain stream all values.
  static std::map<uint32_t, float> entries_of(const Stream& stream,
                                              std::span<const std::byte> payload,
                                              std::span<const float> values) {
    std::map<uint32_t, float> entries;
    if (!stream.codec->info().sparse) {
      for (uint32_t p = 0; p < values.size(); ++p) entries[p] = values[p];
      return entries;
    }
    stream.decoder
        ->visit(payload,
                [&](std::span<const uint32_t> at, std::span<const float> kept) {
                  for (size_t i = 0; i < at.size(); ++i) entries[at[i]] = kept[i];
                })
        .or_throw();
    return entries;
  }

  // Leaves the `most` largest, of equal ones the first, and returns the others.
  static Entries largest(Entries& entries, size_t most) {
    Entries others, order = entries;
    std::stable_sort(order.begin(), order.end(), [](const auto& a, const auto& b) {
      return std::abs(a.second) > std::abs(b.second);
    });
    if (order.size() <= most) return others;
    others.assign(order.begin() + static_cast<std::ptrdiff_t>(most), order.end());
    order.resize(most);
    std::sort(order.begin(), order.end());
    entries = order;
    return others;
  }

  static ValueFormat format_of(const Stream& stream) {
    const ValueFormat format = stream.codec->info().values;
    return format == ValueFormat::kMean ? ValueFormat::kSign : format;
  }

  // The break-even of docs/collectives.md, in bytes that the sparse payload may take.
  static bool is_dense(const Stream& stream, size_t count, size_t kept) {
    const ValueFormat format = format_of(stream);
    const size_t width = format == ValueFormat::kFp32 ? 4 : 2;
    return kept > 0 && format <= ValueFormat::kBf16 &&
           max_sparse_size(count, kept, format) > width * count;
  }

  // What entries of a region come to on the wire; what that loses is added to `left`, if there is one.
  static void code(const Stream& stream, size_t region, Entries& entries, std::span<float> left,
                   std::optional<bool> dense = std::nullopt) {
    if (dense.value_or(is_dense(stream, region, entries.size())) ||
        format_of(stream) <= ValueFormat::kBf16) {  // one by one
      static const char* const kNames[] = {"fp32", "fp16", "bf16"};
      const auto name = kNames[static_cast<size_t>(format_of(stream))];
      const auto codec = make_codec(name).value().codec;
      const StreamSpec one = single_tensor({.name = "x", .shape = {1}});
      for (auto& [p, value] : entries) {
        std::vector<std::byte> bytes(codec->max_encoded_size(one));
        float lost[1];
        codec->make_encoder(one)->encode({.values = std::span(&value, 1)}, {}, bytes, lost);
        if (!left.empty()) left[p] += lost[0];
        value = -0.0f;
        codec->make_decoder(one)->decode_add(bytes, 1.0f, std::span(&value, 1)).or_throw();
      }
      return;
    }
    std::vector<uint32_t> at(entries.size());
    std::iota(at.begin(), at.end(), 0u);
    Values values, lost(entries.size());
    for (const auto& [p, value] : entries) values.push_back(value);
    std::vector<std::byte> bytes(max_sparse_size(at.size(), at.size(), format_of(stream)));
    bytes.resize(write_sparse(at, values, format_of(stream), bytes, lost));
    std::fill(values.begin(), values.end(), 0.0f);
    add_sparse(bytes, format_of(stream), 1.0f, values).or_throw();
    for (size_t i = 0; i < entries.size(); ++i) {
      if (!left.empty()) left[entries[i].first] += lost[i];
      entries[i].second = values[i];
    }
  }

  int ranks_;
  std::vector<double> weights_;  // in this step
  bool shards_ = false;
  std::vector<TensorSpec> model_;
  std::string_view method_;
  uint64_t seed_;
  std::vector<GlobalThreshold> thresholds_;  // by rank; none unless all streams share them
  std::map<std::string, size_t> index_;
  std::map<std::string, size_t> place_;  // among the tensors of the streams
  std::vector<Stream> streams_;
};

}  // namespace thinwire::testing
