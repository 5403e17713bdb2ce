// Writes the golden cases of one codec.
// SPDX-License-Identifier: Apache-2.0
#include "support/golden_cases.h"

#include <cstring>
#include <vector>

#include "support/samples.h"

namespace thinwire::samples {
namespace {

std::string hex_values(std::span<const float> values) {
  std::string text;
  for (size_t i = 0; i < values.size();) {
    size_t zeros = 0;
    while (i + zeros < values.size() && values[i + zeros] == 0) ++zeros;
    if (zeros > 0) {
      text += " *" + std::to_string(zeros);
      i += zeros;
    } else {
      text += " " + hex(std::as_bytes(values.subspan(i++, 1)));
    }
  }
  return text.empty() ? " -" : text;
}

// What a decoder must know of a tensor: how many values, or, where they make a matrix, its
// dimensions.
std::string extent(bool shaped, const TensorSpec& tensor) {
  if (!shaped || tensor.shape.size() < 2) return std::to_string(tensor.count());
  std::string text;
  for (const uint64_t size : tensor.shape) text += (text.empty() ? "" : "x") + std::to_string(size);
  return text;
}

struct Case {
  StreamSpec stream;
  Data data;
};

std::vector<Case> cases() {
  return {{mixed_tensors(), Data::kNormal},
          {mixed_tensors(), Data::kSparse},
          {mixed_tensors(), Data::kConstant},
          {one_tensor(700), Data::kHeavyTail},
          {one_tensor(50), Data::kZeros},
          {one_tensor(50), Data::kHuge},
          {one_tensor(1), Data::kNormal},
          {one_tensor(0), Data::kZeros},
          {one_tensor(60, TensorKind::kConvolution), Data::kDenormal}};
}

}  // namespace

std::string hex(std::span<const std::byte> bytes) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (std::byte byte : bytes) {
    text += kDigits[std::to_integer<int>(byte) >> 4];
    text += kDigits[std::to_integer<int>(byte) & 15];
  }
  return text.empty() ? "-" : text;
}

std::string golden_text(const CodecEntry& entry) {
  std::string text;
  const bool shaped = needs_shapes(*make_codec(entry.info.name).value().codec);
  for (const std::string& variant : codec_variants(entry)) {
    const NamedCodec named = make_codec(variant).value();
    for (const Case& item : cases()) {
      const size_t count = item.stream.count();
      const auto values = make_values(item.data, count, 3);
      auto fresh = make_values(item.data, count, 4);
      const auto payload = encode(*named.codec, item.stream, values, fresh);
      std::vector<float> decoded(count, 0.0f);
      named.codec->make_decoder(item.stream)->decode_add(payload, 1.0f, decoded).or_throw();

      if (!text.empty()) text += '\n';
      text += "codec " + named.canonical + "\ntensors";
      for (const TensorSpec& tensor : item.stream.tensors)
        text += " " + tensor.name + ":" + std::string(thinwire::to_string(tensor.kind)) + ":" +
                extent(shaped, tensor);
      text += "\npayload " + hex(payload) + "\ndecoded" + hex_values(decoded) + "\n";
    }
  }
  return text;
}

}  // namespace thinwire::samples
