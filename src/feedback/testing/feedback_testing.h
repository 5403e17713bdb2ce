// For tests of memories: gradients, a simple codec, whole steps, comparisons.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/random.h"
#include "thinwire/feedback.h"

namespace thinwire::testing {

using Values = std::vector<float>;

constexpr size_t kCount = 10007;

inline std::unique_ptr<Feedback> make(std::string_view spec, size_t count = kCount) {
  return make_feedback(spec, single_tensor({.name = "w", .shape = {count}})).value();
}

// Normal values, another vector in each step of each rank, every eleventh of them zero.
inline Values gradient(uint64_t step, uint32_t rank = 0, size_t count = kCount) {
  Values values(count);
  for (size_t i = 0; i < count; ++i)
    values[i] = i % 11 == 5 ? 0.0f : random_normal({.seed = 4, .step = step, .stream = rank}, i);
  return values;
}

// Tensors of one stream, kCount values in all, and a momentum of its own for each, which changes in
// the third step.
constexpr std::array<size_t, 5> kTensorCounts = {3000, 0, 7, 4000, 3000};
inline StreamSpec several_tensors() {
  StreamSpec stream{.name = "all", .tensors = {}};
  for (const size_t count : kTensorCounts)
    stream.tensors.push_back({.name = "t", .shape = {count}});
  return stream;
}
inline std::vector<Momentum> momenta_in(uint64_t step) {
  const double changing = step < 2 ? 0.9 : 0.5;
  return {{.momentum = changing},
          {},
          {.momentum = changing, .nesterov = true},
          {.momentum = changing, .dampening = 0.5},
          {.momentum = changing, .dampening = 0.5}};
}

inline Values floats(std::span<const float> values) { return {values.begin(), values.end()}; }

// One by one, so that -0 is not 0.
inline void expect_same_bits(std::span<const float> got, std::span<const float> want) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i)
    ASSERT_EQ(std::bit_cast<uint32_t>(got[i]), std::bit_cast<uint32_t>(want[i]))
        << "value " << i << ": " << got[i] << " instead of " << want[i];
}

// Any codec: what becomes of values that lie in `rest`; `step` tells steps apart.
using Encode = std::function<void(std::span<float> rest, uint64_t step)>;

// Sends a third of the values whole, a third rounded to eighths, which may be zero, and a third
// not.
inline void send_some(std::span<float> rest, uint64_t step) {
  for (size_t i = 0; i < rest.size(); ++i) {
    const uint64_t kind = (i * 7 + step) % 3;
    if (kind == 0) rest[i] = 0;
    if (kind == 1) rest[i] -= std::round(rest[i] * 8) / 8;
  }
}
inline void send_all(std::span<float> rest, uint64_t /*step*/) {
  for (float& value : rest) value = 0;
}

// What one step was made of; `sent` is what the receivers decode, up to one rounding.
struct Step {
  Values values, rest, sent, mean;
};

// A whole step of a rank on its own, sent in two parts.
inline Step step(Feedback& feedback, const Values& gradient, uint64_t number,
                 const Encode& encode = send_some) {
  Step made;
  made.values = floats(feedback.prepare(gradient, {.step = number}).values);
  if (!feedback.rest().empty()) encode(feedback.rest(), number);
  made.rest = feedback.rest().empty() ? Values(gradient.size()) : floats(feedback.rest());
  for (size_t i = 0; i < made.values.size(); ++i)
    made.sent.push_back(made.values[i] - made.rest[i]);
  const size_t half = gradient.size() / 2;
  feedback.sent(gradient, half, gradient.size() - half);
  feedback.sent(gradient, 0, half);
  made.mean = made.sent;
  feedback.receive(made.mean);
  feedback.commit();
  return made;
}

// A saved array of floats.
inline Values saved(const Feedback& feedback, std::string_view name, size_t count = kCount) {
  Values values(count);
  copy_state(feedback.save(), name, std::span<float>(values)).or_throw();
  return values;
}

inline void expect_same_state(const StateArrays& got, const StateArrays& want) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    EXPECT_EQ(got[i].name, want[i].name);
    EXPECT_EQ(got[i].data, want[i].data) << got[i].name;
  }
}

// Every rule of the registry: as it is, and with each option at both ends of its range.
inline std::vector<std::string> feedback_variants() {
  std::vector<std::string> all;
  for (const FeedbackEntry* entry : list_feedbacks()) {
    const std::string name(entry->name);
    all.push_back(name);
    for (const OptionInfo& option : entry->options) {
      std::vector<std::string> values(option.choices.begin(), option.choices.end());
      if (option.type == OptionType::kFlag) values = {"false", "true"};
      if (option.type == OptionType::kInteger || option.type == OptionType::kNumber)
        values = {std::to_string(option.min), std::to_string(std::min(option.max, 1e6))};
      if (option.type == OptionType::kInteger)
        for (std::string& value : values) value = value.substr(0, value.find('.'));
      for (const std::string& value : values)
        all.push_back(name + ":" + std::string(option.name) + "=" + value);
    }
  }
  return all;
}

}  // namespace thinwire::testing
