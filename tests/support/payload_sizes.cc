// Encodes the set values with every variant of the registry.
// SPDX-License-Identifier: Apache-2.0
#include "support/payload_sizes.h"

#include <cstdio>

#include "support/samples.h"

namespace thinwire::samples {
namespace {

constexpr size_t kValues = 100003;             // prime: no block or bin divides it
constexpr size_t kRows = 331, kColumns = 302;  // where the shape decides

void add_rows(const std::string& variant, std::string& text) {
  const NamedCodec named = make_codec(variant).value();
  const bool matrix = needs_shapes(*make_codec(named.codec->info().name).value().codec);
  for (const TensorKind kind : {TensorKind::kLinear, TensorKind::kConvolution}) {
    for (const Data data : {Data::kNormal, Data::kHeavyTail}) {
      const StreamSpec stream =
          matrix ? one_matrix(kRows, kColumns, kind) : one_tensor(kValues, kind);
      const size_t bytes = encode(*named.codec, stream, make_values(data, stream.count())).size();
      char numbers[64];
      std::snprintf(numbers, sizeof numbers, "%zu,%.4f\n", bytes,
                    8.0 * static_cast<double>(bytes) / static_cast<double>(stream.count()));
      text += '"' + named.canonical + "\"," + std::string(thinwire::to_string(kind)) + "," +
              std::string(to_string(data)) + "," + numbers;
    }
  }
}

}  // namespace

std::string payload_sizes() {
  std::string text = "codec,kind,values,bytes,bits_per_value\n";
  for (const std::string& variant : codec_variants()) add_rows(variant, text);
  return text;
}

}  // namespace thinwire::samples
