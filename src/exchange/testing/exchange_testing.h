// For tests of the exchange: a model, gradients, one rank's side, comparisons to the bit.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/bytes.h"
#include "core/checksum.h"
#include "core/random.h"
#include "exchange/methods/method.h"
#include "exchange/terms/terms.h"
#include "exchange/testing/agreeing_codecs.h"
#include "exchange/testing/staged_exchange.h"
#include "thinwire/exchange.h"
#include "thinwire/group.h"
#include "thinwire/store.h"

namespace thinwire::testing {

using Values = std::vector<float>;
using Tensors = std::vector<Values>;  // by tensor

// Every kind and odd size: weights, biases and norms between them, a scalar, a tensor of nothing.
inline std::vector<TensorSpec> small_model() {
  return {{"conv.weight", {4, 3, 3, 3}, TensorKind::kConvolution},
          {"conv.bias", {4}, TensorKind::kBias},
          {"norm.weight", {4}, TensorKind::kNorm},
          {"embedding", {7, 5}, TensorKind::kEmbedding},
          {"nothing", {0, 3}, TensorKind::kOther},
          {"lstm.weight", {12, 16}, TensorKind::kRecurrent},
          {"temperature", {}, TensorKind::kOther},
          {"linear.weight", {40, 25}, TensorKind::kLinear},
          {"linear.bias", {40}, TensorKind::kBias}};
}

// Heavy-tailed values of both signs, every eighth of them zero; the same wherever they are asked
// for.
inline Values gradient(const TensorSpec& tensor, int rank, uint64_t step) {
  const RandomKey key{.seed = checksum(std::as_bytes(std::span(tensor.name))),
                      .use = RandomUse::kTest,
                      .step = step,
                      .stream = static_cast<uint32_t>(rank)};
  Values values(tensor.count());
  std::array<uint32_t, 4> words{};
  for (size_t i = 0; i < values.size(); ++i) {
    if (i % 4 == 0) words = random_block(key, i / 4);
    const float unit = static_cast<float>(static_cast<int32_t>(words[i % 4])) * 0x1p-31f;
    values[i] = i % 8 == 7 ? 0.0f : 0.05f * unit * unit * unit;
  }
  return values;
}

inline Tensors gradients(const std::vector<TensorSpec>& model, int rank, uint64_t step) {
  Tensors all;
  for (const TensorSpec& tensor : model) all.push_back(gradient(tensor, rank, step));
  return all;
}

// Equal as bits: -0 is not 0, and a NaN equals itself.
inline bool same_bits(const Values& a, const Values& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}
inline bool same_bits(const Tensors& a, const Tensors& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i)
    if (!same_bits(a[i], b[i])) return false;
  return true;
}

// What "auto" comes down to.
inline Terms terms_of(const ExchangeOptions& options) {
  return resolve_terms(options, options.first_step).value();
}

// The methods whose sums are thinwire's own.
inline const std::vector<std::string>& own_methods() {
  static const std::vector<std::string> methods = {
      "dense", "scatter-reduce", "gather", "sparse-reduce", "low-rank", "shared-index"};
  return methods;
}

// A codec for each of them.
inline std::vector<ExchangeOptions> one_per_method() {
  all_codecs();
  std::vector<ExchangeOptions> all;
  for (const std::string& method : own_methods())
    all.push_back({.codec = method == "low-rank"        ? "test-factors"
                            : method == "shared-index"  ? "test-leader"
                            : method == "sparse-reduce" ? "topk:density=0.5"
                                                        : "fp32",
                   .method = method});
  return all;
}

// Every codec with every method of those that takes it: its name and the method's.
inline std::vector<ExchangeOptions> codecs_and_methods() {
  std::vector<std::string> codecs;
  for (const CodecEntry* entry : all_codecs()) codecs.emplace_back(entry->info.name);
  codecs.emplace_back("terngrad:shared_scale=true");  // rounds, then gather
  codecs.emplace_back("powersgd:alternate=true,rank=1");
  codecs.emplace_back(
      "lgc:density=0.5,block=4,code=1,innovation=0.02");  // by default all is too short for codes
  codecs.emplace_back("lgc:density=0.5,block=4,code=1,train=true");
  std::vector<ExchangeOptions> all;
  for (const std::string& codec : codecs)
    for (const std::string& method : own_methods()) {
      const ExchangeOptions options{.codec = codec, .method = method};
      if (resolve_terms(options, options.first_step)) all.push_back(options);
    }
  for (const std::string codec : {"topk:density=0.1", "sidco:density=0.05,values=bf16"})
    for (const std::string method : {"gather", "sparse-reduce"})
      all.push_back({.codec = codec, .method = method, .grouping = Grouping::kGlobal});
  return all;
}

// Those, or at more than 3 ranks, where methods differ and codecs do not, one or two codecs for
// each method: what every codec is tried with need not be tried at every number of ranks. With
// tensors on fake devices, whose kernels take most of a suite's time, this begins at 3 ranks.
// Sparse-reduce treats what sparse codecs keep alike, so that at other numbers than 2 three of them
// do: a target, a state, all values.
inline std::vector<ExchangeOptions> codecs_and_methods(int ranks) {
  std::vector<ExchangeOptions> all = codecs_and_methods();
  std::erase_if(all, [ranks](const ExchangeOptions& options) {
    return ranks != 2 && options.method == "sparse-reduce" && options.codec != "topk" &&
           options.codec != "sidco" && options.codec != "threshold" && !options.grouping;
  });
  const auto is_odd = [](const ExchangeOptions& options) {
    const std::string name = options.codec + " " + options.method;
    return !options.grouping && name != "fp16 dense" && name != "test-nearest scatter-reduce" &&
           name != "test-dither scatter-reduce" && name != "adacomp gather" &&
           name != "threshold sparse-reduce" && name != "terngrad:shared_scale=true gather" &&
           name != "test-factors low-rank" && name != "test-leader shared-index" &&
           !(on_fake_devices() && (name == "int8 scatter-reduce" || name == "sidco gather"));
  };
  if (ranks > (on_fake_devices() ? 2 : 3)) std::erase_if(all, is_odd);
  return all;
}

inline bool same_state(const StateArrays& a, const StateArrays& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i)
    if (a[i].name != b[i].name || a[i].shape != b[i].shape || a[i].data != b[i].data) return false;
  return true;
}

// What a rank owes of its shard of a stream, at its place among `count` values; nothing when owners
// do not remember.
inline std::optional<Values> owed_by_owner(const StateArrays& saved, const std::string& stream,
                                           size_t count) {
  std::vector<int64_t> pieces;
  Values residual;
  for (const StateArray& array : saved) {
    if (array.name == stream + "/owner/pieces") pieces.resize(array.data.size() / sizeof(int64_t));
    if (array.name == stream + "/owner/residual")
      residual.resize(array.data.size() / sizeof(float));
  }
  if (!copy_state(saved, stream + "/owner/pieces", std::span(pieces)) ||
      !copy_state(saved, stream + "/owner/residual", std::span(residual)))
    return std::nullopt;
  Values owed(count);
  auto from = residual.cbegin();
  for (size_t i = 0; i + 2 < pieces.size(); i += 3) {
    if (pieces[i + 2] != static_cast<int64_t>(count)) return std::nullopt;
    std::copy_n(from, pieces[i + 1], owed.begin() + pieces[i]);
    from += pieces[i + 1];
  }
  return owed;
}

// One rank's exchange over a model, with memory of its own for the tensors.
class Side {
 public:
  Side(Group& group, std::vector<TensorSpec> model, const ExchangeOptions& options)
      : Side(group, std::move(model), options, std::make_shared<Store>()) {}
  Side(Group& group, std::vector<TensorSpec> model, const ExchangeOptions& options,
       std::shared_ptr<Store> store)
      : rank_(group.rank()),
        model_(std::move(model)),
        store_(std::move(store)),
        exchange_(on_fake_devices() ? make_staged_exchange(group, *store_, model_, options)
                                    : make_exchange(group, *store_, model_, options)) {}

  // A whole step: all tensors from last to first. Tensors of `skip` are not started.
  StepReport step(uint64_t number, const std::function<bool(size_t)>& skip = {}) {
    values = gradients(model_, rank_, number);
    for (size_t i = model_.size(); i-- > 0;)
      if (!skip || !skip(i)) start(i);
    return exchange_->finish();
  }

  Ticket start(size_t i) {
    return exchange_->start(i, {.data = values[i].data(), .count = values[i].size()});
  }

  Exchange& exchange() { return *exchange_; }
  Store& store() { return *store_; }

  Tensors values;  // gradients, then means

 private:
  int rank_;
  std::vector<TensorSpec> model_;
  std::shared_ptr<Store> store_;
  std::unique_ptr<Exchange> exchange_;
};

// Whether all ranks say the same.
inline bool same_on_all_ranks(Group& group, uint64_t word) {
  const uint64_t most = group.max(word), least = ~group.max(~word);  // every rank asks for both
  return most == word && least == word;
}

// Whether all ranks have the same values, to the bit.
inline bool same_on_all_ranks(Group& group, const Tensors& tensors) {
  uint64_t sum = 0;
  for (const Values& values : tensors)
    sum = checksum(byte_view(sum), std::as_bytes(std::span(values)));
  return same_on_all_ranks(group, sum);
}

inline std::vector<Tensors> all_gradients(const std::vector<TensorSpec>& model, int ranks,
                                          uint64_t step) {
  std::vector<Tensors> all;
  for (int rank = 0; rank < ranks; ++rank) all.push_back(gradients(model, rank, step));
  return all;
}

}  // namespace thinwire::testing
