// For tests: what the ranks of an oracle have: weights, and for each stream memories and encoders.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "codec/global_codec.h"
#include "exchange/state/global_threshold.h"
#include "exchange/testing/exchange_testing.h"
#include "thinwire/codec.h"
#include "thinwire/feedback.h"

namespace thinwire::testing::oracle {

// Of one stream, on all ranks.
struct Stream {
  StreamSpec spec;
  std::shared_ptr<const Codec> codec;
  bool has_threshold = false;
  std::unique_ptr<const Decoder> decoder;
  std::vector<std::unique_ptr<Feedback>> feedbacks;
  std::vector<std::unique_ptr<Encoder>> encoders;
  Values owed;  // by the owners, of scatter-reduce and sparse-reduce; empty: nothing
};

// A step is begin, then whatever the method does, then end.
class Ranks {
 public:
  // As for Oracle.
  Ranks(int ranks, std::vector<TensorSpec> model, std::vector<StreamSpec> streams,
        const std::string& codec, const std::string& feedback, std::string_view method,
        uint64_t seed, std::optional<Grouping> grouping)
      : ranks_(ranks), model_(std::move(model)), seed_(seed) {
    if (grouping == Grouping::kGlobal) thresholds_.resize(static_cast<size_t>(ranks));
    for (size_t i = 0; i < model_.size(); ++i) index_[model_[i].name] = i;
    std::set<size_t> own;
    for (const StreamSpec& spec : streams)
      for (const TensorSpec& tensor : spec.tensors) own.insert(index_.at(tensor.name));
    for (const size_t i : own) place_.emplace(model_[i].name, place_.size());
    for (StreamSpec& spec : streams)
      streams_.push_back(make_stream(std::move(spec), codec, feedback, method));
    size_t target = 0;
    for (const Stream& stream : streams_)
      if (stream.has_threshold) target += stream.codec->target(stream.spec);
    for (GlobalThreshold& threshold : thresholds_) threshold.aim(target);
  }

  size_t size() const { return static_cast<size_t>(ranks_); }
  float share() const { return 1.0f / static_cast<float>(ranks_); }  // of a rank, in a mean
  const std::vector<TensorSpec>& model() const { return model_; }
  std::vector<Stream>& streams() { return streams_; }
  size_t index_of(const TensorSpec& tensor) const { return index_.at(tensor.name); }

  // Of the stream's first tensor, among the tensors of the streams.
  size_t place_of(const Stream& stream) const {
    return place_.at(stream.spec.tensors.front().name);
  }

  void begin(uint64_t step, std::vector<double> weights) {
    step_ = step;
    weights_ = std::move(weights);
  }
  uint64_t step() const { return step_; }
  void end() {
    for (GlobalThreshold& threshold : thresholds_) threshold.commit();
  }

  bool takes_part(size_t rank) const { return weights_[rank] > 0; }
  std::vector<size_t> participants() const {
    std::vector<size_t> ranks;
    for (size_t r = 0; r < weights_.size(); ++r)
      if (takes_part(r)) ranks.push_back(r);
    return ranks;
  }

  // The stream's part of what a rank is given, times the rank's share of all weights times n.
  Values weighed(const Stream& stream, const std::vector<Tensors>& given, size_t rank) const {
    Values all;
    for (const TensorSpec& tensor : stream.spec.tensors) {
      const Values& part = given[rank][index_of(tensor)];
      all.insert(all.end(), part.begin(), part.end());
    }
    const double sum = std::accumulate(weights_.begin(), weights_.end(), 0.0);
    const auto factor = static_cast<float>(ranks_ * (weights_[rank] / sum));
    for (float& value : all) value = factor == 0 ? 0 : factor == 1 ? value : value * factor;
    return all;
  }

  Call call(size_t salt, size_t offset = 0) const {
    return {.seed = seed_,
            .step = step_,
            .salt = salt,
            .offset = offset,
            .ranks = size(),
            .participants = participants().size()};
  }

  // What the rank's encoder makes of a signal, at the start of `bytes`; returns its size.
  size_t encode(Stream& stream, size_t rank, const Signal& signal, std::span<std::byte> bytes,
                std::span<float> rest) {
    Call own = call(rank);
    if (!stream.has_threshold) return stream.encoders[rank]->encode(signal, own, bytes, rest).size;
    own.quota = thresholds_[rank].quota_for(signal.values, stream.codec->target(stream.spec), own,
                                            place_of(stream));
    const Encoded encoded = stream.encoders[rank]->encode(signal, own, bytes, rest);
    thresholds_[rank].sent(encoded.kept);
    return encoded.size;
  }

 private:
  Stream make_stream(StreamSpec spec, const std::string& codec, const std::string& feedback,
                     std::string_view method) {
    const auto [entry, options] = find_feedback(feedback).value();
    const bool plain = spec.name.starts_with("dense:");
    const std::string beside = entry->plain ? entry->plain(options) : "none";
    Stream stream;
    stream.codec = make_codec(plain ? "fp32" : codec).value().codec;
    stream.has_threshold = !plain && !thresholds_.empty();
    if (stream.has_threshold) stream.codec = with_global_threshold(stream.codec);
    stream.decoder = stream.codec->make_decoder(spec);
    for (int rank = 0; rank < ranks_; ++rank) {
      stream.feedbacks.push_back(make_feedback(plain ? beside : feedback, spec).value());
      stream.encoders.push_back(stream.codec->make_encoder(spec));
    }
    const bool remembers =
        !stream.codec->info().unbiased && !stream.feedbacks.front()->rest().empty();
    if ((remembers && method == "scatter-reduce") || (!plain && method == "sparse-reduce"))
      stream.owed.resize(spec.count());
    stream.spec = std::move(spec);
    return stream;
  }

  int ranks_;
  std::vector<TensorSpec> model_;
  uint64_t seed_;
  std::vector<GlobalThreshold> thresholds_;  // by rank; none unless all streams share them
  std::map<std::string, size_t> index_;
  std::map<std::string, size_t> place_;
  std::vector<Stream> streams_;
  uint64_t step_ = 0;
  std::vector<double> weights_;
};

}  // namespace thinwire::testing::oracle
