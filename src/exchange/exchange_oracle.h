// A plain exchange to compare with: one thread, no messages, a loop over ranks.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "exchange/exchange_testing.h"
#include "thinwire/codec.h"
#include "thinwire/feedback.h"

namespace thinwire::testing {

// Each rank's memory and encoder per stream, and the mean as its definition says.
class Oracle {
 public:
  // `streams` as the exchange names them; those of `dense:` carry fp32 and remember nothing.
  Oracle(int ranks, std::vector<TensorSpec> model, std::vector<StreamSpec> streams,
         const std::string& codec, const std::string& feedback, bool dense, uint64_t seed = 0)
      : ranks_(ranks), model_(std::move(model)), dense_(dense), seed_(seed) {
    for (size_t i = 0; i < model_.size(); ++i) index_[model_[i].name] = i;
    for (StreamSpec& spec : streams) {
      const bool plain = spec.name.starts_with("dense:");
      Stream stream;
      stream.codec = make_codec(plain ? "fp32" : codec).value().codec;
      stream.decoder = stream.codec->make_decoder(spec);
      for (int rank = 0; rank < ranks; ++rank) {
        stream.feedbacks.push_back(make_feedback(plain ? "none" : feedback, spec).value());
        stream.encoders.push_back(stream.codec->make_encoder(spec));
      }
      stream.spec = std::move(spec);
      streams_.push_back(std::move(stream));
    }
  }

  // `given[rank][tensor]`; returns the mean.
  Tensors step(uint64_t number, const std::vector<Tensors>& given) {
    Tensors mean(model_.size());
    for (Stream& stream : streams_) {
      const Values joined = followed(
          stream, dense_ ? dense_mean(stream, number, given) : gather_mean(stream, number, given));
      size_t at = 0;
      for (const TensorSpec& tensor : stream.spec.tensors) {
        Values& to = mean[index_.at(tensor.name)];
        to.assign(joined.begin() + static_cast<std::ptrdiff_t>(at),
                  joined.begin() + static_cast<std::ptrdiff_t>(at + tensor.count()));
        at += tensor.count();
      }
    }
    return mean;
  }

 private:
  struct Stream {
    StreamSpec spec;
    std::unique_ptr<const Codec> codec;
    std::unique_ptr<const Decoder> decoder;
    std::vector<std::unique_ptr<Feedback>> feedbacks;
    std::vector<std::unique_ptr<Encoder>> encoders;
  };

  // What a rank sends in this step.
  std::vector<std::byte> payload(Stream& stream, int rank, uint64_t number, const Tensors& given) {
    Values gradient;
    for (const TensorSpec& tensor : stream.spec.tensors) {
      const Values& part = given[index_.at(tensor.name)];
      gradient.insert(gradient.end(), part.begin(), part.end());
    }
    const Call call{.seed = seed_, .step = number, .ranks = static_cast<uint64_t>(ranks_)};
    const auto r = static_cast<size_t>(rank);
    const Signal signal = stream.feedbacks[r]->prepare(gradient, call);
    std::vector<std::byte> bytes(stream.codec->max_encoded_size(stream.spec));
    bytes.resize(stream.encoders[r]->encode(signal, call, bytes, stream.feedbacks[r]->rest()).size);
    stream.feedbacks[r]->sent(gradient, 0, gradient.size());
    return bytes;
  }

  // What the ranks' memories make of the mean, the same on all of them; ends the step.
  Values followed(Stream& stream, const Values& mean) {
    Values of_first;
    for (size_t r = 0; r < stream.feedbacks.size(); ++r) {
      Values own = mean;
      stream.feedbacks[r]->receive(own);
      if (r == 0) of_first = own;
      EXPECT_TRUE(same_bits(own, of_first)) << "memory of rank " << r;
      stream.feedbacks[r]->commit();
      stream.encoders[r]->commit();
    }
    return of_first;
  }

  Values gather_mean(Stream& stream, uint64_t number, const std::vector<Tensors>& given) {
    Values mean(stream.spec.count());
    for (int rank = 0; rank < ranks_; ++rank)
      stream.decoder
          ->decode_add(payload(stream, rank, number, given[static_cast<size_t>(rank)]),
                       1.0f / static_cast<float>(ranks_), mean)
          .or_throw();
    return mean;
  }

  Values dense_mean(Stream& stream, uint64_t number, const std::vector<Tensors>& given) {
    Values sum(stream.spec.count());
    for (int rank = 0; rank < ranks_; ++rank) {
      Values part(stream.spec.count(), -0.0f);
      stream.decoder
          ->decode_add(payload(stream, rank, number, given[static_cast<size_t>(rank)]), 1.0f, part)
          .or_throw();
      for (size_t i = 0; i < sum.size(); ++i) sum[i] = rank == 0 ? part[i] : sum[i] + part[i];
    }
    for (float& value : sum) value *= 1.0f / static_cast<float>(ranks_);
    std::vector<std::byte> bytes(stream.codec->max_encoded_size(stream.spec));
    const auto encoder = stream.codec->make_encoder(stream.spec);
    bytes.resize(encoder
                     ->encode({.values = sum, .fresh = {}, .moments = {}},
                              {.seed = seed_, .step = number}, bytes, {})
                     .size);
    Values mean(sum.size(), -0.0f);
    stream.decoder->decode_add(bytes, 1.0f, mean).or_throw();
    return mean;
  }

  int ranks_;
  std::vector<TensorSpec> model_;
  bool dense_;
  uint64_t seed_;
  std::map<std::string, size_t> index_;
  std::vector<Stream> streams_;
};

}  // namespace thinwire::testing
