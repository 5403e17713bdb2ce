// Inputs for tests of every codec: variants of options, streams, ordinary and difficult values.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "thinwire/codec.h"

namespace thinwire::samples {

// For every codec of the registry: its defaults, each choice of each option, and both ends of each
// numeric range that has ends. "topk", "topk:values=fp16", ...
std::vector<std::string> codec_variants();
// The same for one codec.
std::vector<std::string> codec_variants(const CodecEntry& entry);

// One tensor of `count` values.
StreamSpec one_tensor(size_t count, TensorKind kind = TensorKind::kLinear);

// One tensor that is a matrix.
StreamSpec one_matrix(size_t rows, size_t columns, TensorKind kind = TensorKind::kLinear);

// Whether payloads of the codec depend on the dimensions of tensors, not only on their kinds and counts.
bool needs_shapes(const Codec& codec);

// A convolution, a linear and a bias tensor of odd sizes as one stream.
StreamSpec mixed_tensors();

enum class Data { kNormal, kHeavyTail, kZeros, kConstant, kDenormal, kHuge, kSparse, kOneSpike };
inline constexpr Data kAllData[] = {Data::kNormal,   Data::kHeavyTail, Data::kZeros,
                                    Data::kConstant, Data::kDenormal,  Data::kHuge,
                                    Data::kSparse,   Data::kOneSpike};
std::string_view to_string(Data data);

// The same on every machine and run.
std::vector<float> make_values(Data data, size_t count, uint64_t seed = 1);

// Encodes with a fresh encoder; `rest`, if not null, receives the remainder.
std::vector<std::byte> encode(const Codec& codec, const StreamSpec& stream,
                              std::span<const float> values, std::span<const float> fresh = {},
                              std::vector<float>* rest = nullptr, const Call& call = {});

}  // namespace thinwire::samples
