// Encodes and decodes degenerate values with every codec of the registry.
// SPDX-License-Identifier: Apache-2.0
#include "support/degenerate_answers.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <vector>

#include "support/samples.h"

namespace thinwire::samples {
namespace {

constexpr size_t kRows = 25, kColumns = 40;

struct Input {
  const char* name;
  std::vector<float> values;
};

std::vector<Input> inputs() {
  constexpr size_t kCount = kRows * kColumns;
  return {{"no values", {}},
          {"one value", {0.7f}},
          {"zeros", make_values(Data::kZeros, kCount)},
          {"constant", make_values(Data::kConstant, kCount)},
          {"negative constant", std::vector<float>(kCount, -0.5f)},
          {"denormal", make_values(Data::kDenormal, kCount)},
          {"huge", make_values(Data::kHuge, kCount)},
          {"one spike", make_values(Data::kOneSpike, kCount)}};
}

void add_row(const CodecEntry& entry, const Input& input, std::string& text) {
  const auto codec = make_codec(entry.info.name).value().codec;
  const bool matrix = needs_shapes(*codec) && input.values.size() > 1;
  const StreamSpec stream = matrix ? one_matrix(kRows, kColumns) : one_tensor(input.values.size());
  const auto payload = encode(*codec, stream, input.values);
  std::vector<float> decoded(input.values.size());
  codec->make_decoder(stream)->decode_add(payload, 1, decoded).or_throw();
  double largest = 0, error = 0;
  for (size_t i = 0; i < decoded.size(); ++i) {
    largest = std::max(largest, std::abs(double{input.values[i]}));
    error = std::max(error, std::abs(double{input.values[i]} - decoded[i]));
  }
  const auto arrived = decoded.size() - static_cast<size_t>(std::ranges::count(decoded, 0.0f));
  char numbers[96];
  std::snprintf(numbers, sizeof numbers, "%zu,%zu,%.2g\n", payload.size(), arrived,
                largest > 0 ? error / largest : error);
  text += std::string(entry.info.name) + "," + input.name + "," + numbers;
}

}  // namespace

std::string degenerate_answers() {
  std::string text = "codec,input,bytes,arrives,error\n";
  for (const CodecEntry* entry : list_codecs())
    for (const Input& input : inputs()) add_row(*entry, input, text);
  return text;
}

}  // namespace thinwire::samples
