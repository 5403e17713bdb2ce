// For tests of boundaries: both ends, activations that drift, and top-k by sorting.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "core/random.h"
#include "thinwire/boundary.h"

namespace thinwire::testing {

using Values = std::vector<float>;
using Ids = std::vector<uint64_t>;

inline constexpr size_t kSample = 24;  // values

inline BoundarySpec spec_of(std::string codec, std::string memory, bool per_sample = true) {
  BoundarySpec spec;
  spec.name = "cut";
  spec.sample_shape = {4, 6};
  spec.samples = 8;
  spec.codec = std::move(codec);
  spec.per_sample = per_sample;
  spec.memory = std::move(memory);
  spec.seed = 7;
  return spec;
}

// Each sample its own, which changes a little with `time`.
inline Values activations(const Ids& ids, uint64_t time, size_t count = kSample) {
  Values values;
  for (const uint64_t id : ids)
    for (size_t i = 0; i < count; ++i)
      values.push_back(random_normal({.seed = 1, .step = id}, i) +
                       0.1f * random_normal({.seed = 2 + time, .step = id}, i));
  return values;
}

inline Ids numbers(uint64_t first, size_t count) {
  Ids ids(count);
  std::iota(ids.begin(), ids.end(), first);
  return ids;
}

inline void expect_same_bits(const Values& got, const Values& want) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i)
    ASSERT_EQ(std::bit_cast<uint32_t>(got[i]), std::bit_cast<uint32_t>(want[i]))
        << "value " << i << ": " << got[i] << " instead of " << want[i];
}

// The k largest magnitudes that are not zero, equal ones from the lowest up; others are 0.
inline Values top(const Values& values, size_t k) {
  std::vector<size_t> order(values.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return std::abs(values[a]) > std::abs(values[b]); });
  Values kept(values.size());
  for (size_t i = 0; i < std::min(k, order.size()); ++i) kept[order[i]] = values[order[i]];
  return kept;
}

inline void expect_same_arrays(const StateArrays& got, const StateArrays& want) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    EXPECT_EQ(got[i].name, want[i].name);
    EXPECT_EQ(got[i].shape, want[i].shape) << got[i].name;
    EXPECT_EQ(got[i].data, want[i].data) << got[i].name;
  }
}

// The arrays that both ends must have alike.
inline StateArrays estimates(const Stateful& end) {
  StateArrays all = end.save();
  std::erase_if(all, [](const StateArray& array) { return !array.name.starts_with("estimates/"); });
  return all;
}

// A boundary with both ends in one place.
struct Pair {
  explicit Pair(const BoundarySpec& spec)
      : sender(make_boundary_sender(spec).value()),
        receiver(make_boundary_receiver(spec).value()),
        message(sender->max_message_size()) {}

  Sent send(const Values& values, const Visit& visit) {
    sent = sender->encode(values, visit, message);
    return sent;
  }
  std::span<const std::byte> bytes() const { return std::span(message).first(sent.size); }

  // Whole, but for the commit.
  Values cross(const Values& values, const Visit& visit) {
    send(values, visit);
    Values arrived(values.size(), 99.0f);
    receiver->decode(bytes(), visit, arrived).or_throw();
    return arrived;
  }
  Values step(const Values& values, const Visit& visit) {
    const Values arrived = cross(values, visit);
    commit();
    return arrived;
  }
  void commit() {
    sender->commit();
    receiver->commit();
  }
  void rollback() {
    sender->rollback();
    receiver->rollback();
  }

  std::unique_ptr<BoundarySender> sender;
  std::unique_ptr<BoundaryReceiver> receiver;
  std::vector<std::byte> message;
  Sent sent;
};

}  // namespace thinwire::testing
