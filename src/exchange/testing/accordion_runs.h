// For tests of accordions: codecs with one, and gradients whose norms change at different times.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "exchange/testing/exchange_testing.h"

namespace thinwire::testing {

inline constexpr uint64_t kStepsInEpoch = 2;

inline std::vector<TensorSpec> accordion_model() {
  return {{"a.weight", {30, 20}, TensorKind::kLinear},
          {"a.bias", {30}, TensorKind::kBias},
          {"b.weight", {16, 40}, TensorKind::kLinear},
          {"c.weight", {25, 8}, TensorKind::kLinear}};
}

// Gradients whose direction never changes. That of each tensor grows or shrinks at other times.
inline Tensors accordion_gradients(const std::vector<TensorSpec>& model, int rank, uint64_t step) {
  Tensors values = gradients(model, rank, 0);
  for (size_t t = 0; t < values.size(); ++t) {
    const bool large = (step / 4 + t) % (t + 2) == 0;
    for (float& value : values[t]) value *= large ? 4.0f : 1.0f;
  }
  return values;
}

inline StepReport accordion_step(Side& side, Tensors values) {
  side.values = std::move(values);
  for (size_t i = side.values.size(); i-- > 0;) side.start(i);
  return side.exchange().finish();
}

struct AccordionCase {
  std::string codec, method = "auto";
  std::optional<Grouping> grouping = std::nullopt;
  int inside = 1;
};

inline ExchangeOptions accordion_options(const AccordionCase& one) {
  return {.codec = one.codec,
          .steps_per_epoch = kStepsInEpoch,
          .method = one.method,
          .inside = one.inside,
          .grouping = one.grouping,
          .bucket_bytes = 2000};
}

inline std::vector<AccordionCase> accordion_cases() {
  return {{"topk:density=accordion(0.5;0.1;0.5;2)"},
          {"topk:density=accordion(0.5;0.1;0.5;1)", "sparse-reduce"},
          {"topk:density=accordion(0.5;0.1;0.5;2)", "gather", Grouping::kModel},
          {"topk:density=accordion(0.5;0.1;0.5;2)", "gather", Grouping::kGlobal},
          {"topk:density=accordion(0.5;0.1;0.5;2)", "auto", std::nullopt, 2},
          {"uniform:bits=accordion(8;3;0.5;2)", "scatter-reduce"},
          {"randomk:density=accordion(0.5;0.1;0.5;2)"},
          {"powersgd:rank=accordion(3;1;0.5;2),min_compression=0"},
          {"sidco:density=accordion(0.5;0.1;0.5;2)", "auto", Grouping::kTensor}};
}

}  // namespace thinwire::testing
