// Variants, streams and values, all pure functions of the registry and a seed.
// SPDX-License-Identifier: Apache-2.0
#include "support/samples.h"

#include <cmath>
#include <limits>
#include <map>
#include <mutex>
#include <tuple>

#include "core/random.h"

namespace thinwire::samples {

std::vector<std::string> codec_variants(const CodecEntry& entry) {
  const std::string name(entry.info.name);
  std::vector<std::string> variants = {name};
  const auto add = [&](const OptionInfo& option, std::string_view value) {
    if (value == option.fallback) return;
    variants.push_back(name + ":" + std::string(option.name) + "=" + std::string(value));
  };
  for (const OptionInfo& option : entry.options) {
    for (std::string_view choice : option.choices) add(option, choice);
    if (option.type == OptionType::kFlag)
      for (const char* flag : {"false", "true"}) add(option, flag);
    if (option.type != OptionType::kInteger && option.type != OptionType::kNumber) continue;
    for (double end : {option.min, option.max})
      if (std::abs(end) < 1e12)
        add(option, option.type == OptionType::kInteger ? std::to_string(static_cast<int64_t>(end))
                                                        : std::to_string(end));
  }
  return variants;
}

std::vector<std::string> codec_variants() {
  std::vector<std::string> all;
  for (const CodecEntry* entry : list_codecs())
    for (std::string& variant : codec_variants(*entry)) all.push_back(std::move(variant));
  return all;
}

StreamSpec one_tensor(size_t count, TensorKind kind) {
  return single_tensor({.name = "weight", .shape = {count}, .kind = kind});
}

StreamSpec one_matrix(size_t rows, size_t columns, TensorKind kind) {
  return single_tensor({.name = "weight", .shape = {rows, columns}, .kind = kind});
}

bool needs_shapes(const Codec& codec) {
  return codec.max_encoded_size(one_tensor(1000)) != codec.max_encoded_size(one_matrix(25, 40));
}

StreamSpec mixed_tensors() {
  return {
      .name = "model",
      .tensors = {{.name = "conv.weight", .shape = {4, 3, 3, 3}, .kind = TensorKind::kConvolution},
                  {.name = "fc.weight", .shape = {7, 129}, .kind = TensorKind::kLinear},
                  {.name = "fc.bias", .shape = {13}, .kind = TensorKind::kBias}}};
}

std::string_view to_string(Data data) {
  switch (data) {
    case Data::kNormal:
      return "normal";
    case Data::kHeavyTail:
      return "heavy tail";
    case Data::kZeros:
      return "zeros";
    case Data::kConstant:
      return "constant";
    case Data::kDenormal:
      return "denormal";
    case Data::kHuge:
      return "huge";
    case Data::kSparse:
      return "sparse";
    case Data::kOneSpike:
      return "one spike";
  }
  return "?";
}

namespace {

std::vector<float> draw(Data data, size_t count, uint64_t seed) {
  const RandomKey key{.seed = seed, .use = RandomUse::kTest};
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) {
    const float z = random_normal(key, i);
    switch (data) {
      case Data::kNormal:
        values[i] = z;
        break;
      case Data::kHeavyTail:
        values[i] = z * z * z * 1e-3f;
        break;
      case Data::kZeros:
        values[i] = 0;
        break;
      case Data::kConstant:
        values[i] = 0.5f;
        break;
      case Data::kDenormal:
        values[i] = z * 1e-40f;
        break;
      case Data::kHuge:
        values[i] = std::copysign(std::numeric_limits<float>::max() * 0.4f, z);
        break;
      case Data::kSparse:
        values[i] = i % 37 == 5 ? z : 0.0f;
        break;
      case Data::kOneSpike:
        values[i] = i == count / 2 ? 1000.0f : 0.0f;
        break;
    }
  }
  return values;
}

}  // namespace

// Drawn once: suites ask for the same values a thousand times.
std::vector<float> make_values(Data data, size_t count, uint64_t seed) {
  static std::mutex mutex;
  static std::map<std::tuple<Data, size_t, uint64_t>, std::vector<float>> drawn;
  const std::lock_guard lock(mutex);
  const auto [at, missing] = drawn.try_emplace({data, count, seed});
  if (missing) at->second = draw(data, count, seed);
  return at->second;
}

std::vector<std::byte> encode(const Codec& codec, const StreamSpec& stream,
                              std::span<const float> values, std::span<const float> fresh,
                              std::vector<float>* rest, const Call& call) {
  std::vector<std::byte> bytes(codec.max_encoded_size(stream));
  if (rest != nullptr) rest->resize(values.size());
  const auto encoded = codec.make_encoder(stream)->encode(
      {.values = values, .fresh = fresh, .moments = {}}, call, bytes,
      rest != nullptr ? std::span(*rest) : std::span<float>());
  bytes.resize(encoded.size);
  return bytes;
}

}  // namespace thinwire::samples
