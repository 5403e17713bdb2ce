// For tests: the mean of method sparse-reduce, region by region, in vectors as long as the stream.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <numeric>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "codec/sparse_payload.h"
#include "exchange/testing/oracle_ranks.h"

namespace thinwire::testing::oracle {

// Stripes of 64 values in groups of m: what docs/collectives.md says of sparse-reduce.
class Regions {
 public:
  Regions(Ranks& ranks, Stream& stream)
      : ranks_(ranks),
        stream_(stream),
        regions_(std::clamp<size_t>(stream.spec.count() / 512, 1, ranks.size())),
        arrived_(regions_.size()) {
    const size_t m = regions_.size();
    share_ = (stream.codec->max_kept(stream.spec) + m - 1) / m;
    for (uint32_t p = 0; p < stream.spec.count(); ++p) {
      const size_t group = p / 64 / m;
      const auto turn = static_cast<uint32_t>(group * 0x9E3779B97F4A7C15u >> 32);
      regions_[(p / 64 % m + turn % m) % m].push_back(p);
    }
  }

  Values mean(const std::vector<Tensors>& given) {
    Values sum(stream_.spec.count()), result(sum.size());
    for (const size_t r : ranks_.participants()) add_parts(r, given, sum);
    for (float& value : sum) value *= ranks_.share();
    for (size_t i = 0; i < stream_.owed.size(); ++i) sum[i] += stream_.owed[i];
    for (size_t j = 0; j < regions_.size(); ++j) hand_out(j, sum, result);
    return result;
  }

 private:
  using Entries = std::vector<std::pair<uint32_t, float>>;

  // Of a region, on its way to the owner or back.
  size_t most(size_t region) const { return std::min(regions_[region].size(), 2 * share_ + 16); }

  void add_parts(size_t rank, const std::vector<Tensors>& given, Values& sum) {
    const Values gradient = ranks_.weighed(stream_, given, rank);
    const Signal signal = stream_.feedbacks[rank]->prepare(gradient, ranks_.call(rank));
    const std::span<float> rest = stream_.feedbacks[rank]->rest();
    std::vector<std::byte> bytes(stream_.codec->max_encoded_size(stream_.spec));
    bytes.resize(ranks_.encode(stream_, rank, signal, bytes, rest));
    const auto kept = kept_by(bytes, signal.values);
    for (size_t j = 0; j < regions_.size(); ++j) {
      Entries part;
      for (const uint32_t p : regions_[j])
        if (const auto entry = kept.find(p); entry != kept.end()) part.push_back(*entry);
      for (const auto& [p, value] : leave_largest(part, most(j)))
        if (!rest.empty()) rest[p] += value;
      const size_t owner = (j + ranks_.place_of(stream_)) % ranks_.size();
      if (owner != rank) code(part, rest, is_dense(regions_[j].size(), part.size()));
      for (const auto& [p, value] : part) sum[p] += value;
      arrived_[j] += part.size();
    }
    stream_.feedbacks[rank]->sent(gradient, 0, gradient.size());
  }

  // As many values as a rank that takes part sent on average.
  void hand_out(size_t region, const Values& sum, Values& result) {
    Entries all;
    for (const uint32_t p : regions_[region]) all.push_back({p, sum[p]});
    const size_t senders = ranks_.participants().size();
    const size_t kept = std::min((arrived_[region] + senders - 1) / senders, most(region));
    const bool dense = is_dense(all.size(), kept);
    Entries chosen = all;
    if (!dense) {
      leave_largest(chosen, kept);
      std::erase_if(chosen, [](const auto& entry) { return entry.second == 0; });
    }
    const std::span<float> owed = stream_.owed;
    for (size_t i = 0; i < all.size() && !owed.empty(); ++i) owed[all[i].first] = all[i].second;
    for (const auto& [p, value] : chosen)
      if (!owed.empty()) owed[p] = 0;
    code(chosen, owed, dense);
    for (const auto& [p, value] : chosen) result[p] = value;
  }

  // What a payload keeps; of a plain stream all values.
  std::map<uint32_t, float> kept_by(std::span<const std::byte> payload,
                                    std::span<const float> values) const {
    std::map<uint32_t, float> entries;
    if (!stream_.codec->info().sparse) {
      for (uint32_t p = 0; p < values.size(); ++p) entries[p] = values[p];
      return entries;
    }
    stream_.decoder
        ->visit(payload,
                [&](std::span<const uint32_t> at, std::span<const float> kept) {
                  for (size_t i = 0; i < at.size(); ++i) entries[at[i]] = kept[i];
                })
        .or_throw();
    return entries;
  }

  // Leaves the `most` largest, of equal ones the first, and returns the others.
  static Entries leave_largest(Entries& entries, size_t most) {
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

  ValueFormat format() const {
    const ValueFormat format = stream_.codec->info().values;
    return format == ValueFormat::kMean ? ValueFormat::kSign : format;
  }

  // The break-even of docs/collectives.md, in bytes that the sparse payload may take.
  bool is_dense(size_t count, size_t kept) const {
    const size_t width = format() == ValueFormat::kFp32 ? 4 : 2;
    return kept > 0 && format() <= ValueFormat::kBf16 &&
           max_sparse_size(count, kept, format()) > width * count;
  }

  // What entries of a region come to on the wire; what that loses is added to `left`, if there is
  // one.
  void code(Entries& entries, std::span<float> left, bool dense) const {
    if (dense || format() <= ValueFormat::kBf16) return code_one_by_one(entries, left);
    std::vector<uint32_t> at(entries.size());
    std::iota(at.begin(), at.end(), 0u);
    Values values, lost(entries.size());
    for (const auto& [p, value] : entries) values.push_back(value);
    std::vector<std::byte> bytes(max_sparse_size(at.size(), at.size(), format()));
    bytes.resize(write_sparse(at, values, format(), bytes, lost));
    std::fill(values.begin(), values.end(), 0.0f);
    add_sparse(bytes, format(), 1.0f, values).or_throw();
    for (size_t i = 0; i < entries.size(); ++i) {
      if (!left.empty()) left[entries[i].first] += lost[i];
      entries[i].second = values[i];
    }
  }

  void code_one_by_one(Entries& entries, std::span<float> left) const {
    static const char* const kNames[] = {"fp32", "fp16", "bf16"};
    const auto codec = make_codec(kNames[static_cast<size_t>(format())]).value().codec;
    const StreamSpec one = single_tensor({.name = "x", .shape = {1}});
    for (auto& [p, value] : entries) {
      std::vector<std::byte> bytes(codec->max_encoded_size(one));
      float lost[1];
      codec->make_encoder(one)->encode({.values = std::span(&value, 1)}, {}, bytes, lost);
      if (!left.empty()) left[p] += lost[0];
      value = -0.0f;
      codec->make_decoder(one)->decode_add(bytes, 1.0f, std::span(&value, 1)).or_throw();
    }
  }

  Ranks& ranks_;
  Stream& stream_;
  std::vector<std::vector<uint32_t>> regions_;  // positions
  std::vector<size_t> arrived_;                 // by region: values of all ranks
  size_t share_ = 0;                            // of a region, in what a rank may keep
};

}  // namespace thinwire::testing::oracle
