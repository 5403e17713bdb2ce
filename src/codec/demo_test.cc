// demo against cosine transforms in double by their definition, and what it keeps, leaves and
// refuses.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numbers>
#include <vector>

#include "codec/sparse_payload.h"
#include "core/random.h"
#include "thinwire/codec.h"

namespace thinwire {
namespace {

using ::testing::HasSubstr;

StreamSpec matrix(uint64_t rows, uint64_t columns) {
  return single_tensor({.name = "w", .shape = {rows, columns}, .kind = TensorKind::kLinear});
}

struct Outcome {
  Encoded encoded;
  std::vector<float> rest;
  std::vector<float> decoded;
};

Outcome send(const std::string& spec, const StreamSpec& stream, const std::vector<float>& values) {
  const NamedCodec named = make_codec(spec).value();
  std::vector<std::byte> payload(named.codec->max_encoded_size(stream));
  Outcome outcome{.encoded = {},
                  .rest = std::vector<float>(values.size(), 7.0f),
                  .decoded = std::vector<float>(values.size())};
  outcome.encoded =
      named.codec->make_encoder(stream)->encode({.values = values}, {}, payload, outcome.rest);
  payload.resize(outcome.encoded.size);
  named.codec->make_decoder(stream)->decode_add(payload, 1.0f, outcome.decoded).or_throw();
  EXPECT_EQ(outcome.encoded.target, named.codec->target(stream));
  return outcome;
}

std::vector<float> normal(size_t count, uint64_t seed = 1) {
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) values[i] = random_normal({.seed = seed}, i);
  return values;
}

double energy(const auto& values) {
  double sum = 0;
  for (const double value : values) sum += value * value;
  return sum;
}

// Element x of the orthonormal cosine u of length n.
double cosine(size_t u, size_t x, size_t n) {
  const double scale = std::sqrt((u == 0 ? 1.0 : 2.0) / static_cast<double>(n));
  return scale * std::cos(std::numbers::pi * static_cast<double>((2 * x + 1) * u) /
                          static_cast<double>(2 * n));
}

using Tile = std::vector<std::vector<double>>;

// Coefficients of a tile and, with `back`, its values, by the double sum of the definition.
Tile transform(const Tile& from, bool back) {
  const size_t h = from.size(), w = from[0].size();
  Tile to(h, std::vector<double>(w));
  for (size_t a = 0; a < h; ++a)
    for (size_t b = 0; b < w; ++b)
      for (size_t c = 0; c < h; ++c)
        for (size_t d = 0; d < w; ++d)
          to[a][b] += from[c][d] * (back ? cosine(c, a, h) * cosine(d, b, w)
                                         : cosine(a, c, h) * cosine(b, d, w));
  return to;
}

// What arrives of a matrix, in double.
std::vector<double> oracle(const std::vector<float>& values, size_t rows, size_t columns,
                           size_t chunk, double density) {
  std::vector<double> decoded(values.size());
  for (size_t top = 0; top < rows; top += chunk)
    for (size_t left = 0; left < columns; left += chunk) {
      const size_t h = std::min(chunk, rows - top), w = std::min(chunk, columns - left);
      Tile tile(h, std::vector<double>(w));
      for (size_t y = 0; y < h; ++y)
        for (size_t x = 0; x < w; ++x) tile[y][x] = values[(top + y) * columns + left + x];
      tile = transform(tile, false);
      std::vector<double> magnitudes;
      for (const auto& row : tile)
        for (const double one : row) magnitudes.push_back(std::abs(one));
      std::sort(magnitudes.begin(), magnitudes.end(), std::greater<>());
      const auto size = static_cast<double>(h * w);
      const auto most = static_cast<size_t>(std::max(1.0, std::floor(density * size + 0.5)));
      for (auto& row : tile)
        for (double& one : row)
          if (std::abs(one) < magnitudes[most - 1]) one = 0;
      tile = transform(tile, true);
      for (size_t y = 0; y < h; ++y)
        for (size_t x = 0; x < w; ++x) decoded[(top + y) * columns + left + x] = tile[y][x];
    }
  return decoded;
}

TEST(Demo, IsTheTransformByItsDefinition) {
  struct Case {
    size_t rows, columns, chunk;
    double density;
  };
  for (const auto& [rows, columns, chunk, density] :
       {Case{16, 24, 8, 0.1}, Case{21, 13, 8, 0.25}, Case{5, 40, 64, 0.05}, Case{20, 20, 20, 1}}) {
    SCOPED_TRACE(std::to_string(rows) + " x " + std::to_string(columns));
    const auto values = normal(rows * columns);
    const Outcome got =
        send("demo:chunk=" + std::to_string(chunk) + ",density=" + std::to_string(density),
             matrix(rows, columns), values);
    const auto expected = oracle(values, rows, columns, chunk, density);
    EXPECT_EQ(got.encoded.kept, got.encoded.target);
    for (size_t i = 0; i < values.size(); ++i) ASSERT_NEAR(got.decoded[i], expected[i], 2e-6) << i;
  }
}

TEST(Demo, SendsACosineAsOneCoefficient) {
  std::vector<float> values(64 * 64);
  for (size_t y = 0; y < 64; ++y)
    for (size_t x = 0; x < 64; ++x)
      values[64 * y + x] = static_cast<float>(100 * cosine(5, y, 64) * cosine(17, x, 64));
  const Outcome got = send("demo:density=0.0001", matrix(64, 64), values);
  EXPECT_EQ(got.encoded.kept, 1u);
  EXPECT_LT(energy(got.rest), 1e-10 * energy(values));
}

// A vector is a row, and a tensor of more dimensions a matrix of its first.
TEST(Demo, TakesTensorsAsMatrices) {
  const auto values = normal(4 * 3 * 5 * 5);
  const auto sent = [&](std::vector<uint64_t> shape) {
    return send("demo:chunk=8", single_tensor({.name = "w", .shape = std::move(shape)}), values)
        .decoded;
  };
  EXPECT_EQ(sent({4, 3, 5, 5}), sent({4, 75}));
  EXPECT_EQ(sent({300}), sent({1, 300}));
  EXPECT_NE(sent({300}), sent({4, 75}));
  EXPECT_EQ(sent({300}).size(), 300u);

  const StreamSpec several{.name = "model",
                           .tensors = {{.name = "a", .shape = {4, 50}},
                                       {.name = "none", .shape = {0, 7}},
                                       {.name = "b", .shape = {2, 50}}}};
  const Outcome both = send("demo:chunk=8", several, values);
  const std::vector<float> first(values.begin(), values.begin() + 200),
      last(values.begin() + 200, values.end());
  auto apart = send("demo:chunk=8", matrix(4, 50), first).decoded;
  const auto of_last = send("demo:chunk=8", matrix(2, 50), last).decoded;
  apart.insert(apart.end(), of_last.begin(), of_last.end());
  EXPECT_EQ(both.decoded, apart);
}

TEST(Demo, KeepsAShareOfEachTileAndAtLeastOne) {
  const auto kept = [](const std::string& spec, uint64_t rows, uint64_t columns) {
    const Outcome got = send(spec, matrix(rows, columns), normal(rows * columns));
    EXPECT_EQ(got.encoded.kept, got.encoded.target);
    return got.encoded.kept;
  };
  EXPECT_EQ(kept("demo", 64, 64), 32u);
  EXPECT_EQ(kept("demo", 128, 65), 2 * 32 + 2u);  // columns of one: 64 values each
  EXPECT_EQ(kept("demo", 3, 5), 1u);
  EXPECT_EQ(kept("demo:chunk=2,density=1e-6", 6, 6), 9u);
  EXPECT_EQ(kept("demo:density=1", 10, 10), 100u);
  EXPECT_EQ(send("demo", matrix(64, 64), std::vector<float>(4096)).encoded.kept, 0u);
}

// Of all choices of k coefficients the largest leave least.
TEST(Demo, LeavesLessThanThereWasWithEveryFormat) {
  const auto values = normal(100 * 90);
  for (const char* format : {"fp32", "fp16", "bf16", "int8", "int2", "sign"}) {
    const Outcome got =
        send("demo:density=0.05,values=" + std::string(format), matrix(100, 90), values);
    EXPECT_LT(energy(got.rest), 0.9 * energy(values)) << format;
    for (size_t i = 0; i < values.size(); ++i)
      ASSERT_EQ(got.rest[i], values[i] - got.decoded[i]) << format;
  }
}

TEST(Demo, StaysFiniteNearTheLargestFloat) {
  constexpr float kMost = std::numeric_limits<float>::max();
  for (const size_t edge : {1u, 9u, 64u, 200u})
    for (const bool alternate : {false, true}) {
      std::vector<float> values(edge * edge, kMost);
      for (size_t i = 0; alternate && i < values.size(); i += 2) values[i] = -kMost;
      values.back() = 1;
      const Outcome got = send("demo:chunk=256,density=1", matrix(edge, edge), values);
      for (size_t i = 0; i < values.size(); ++i) {
        ASSERT_TRUE(std::isfinite(got.decoded[i])) << i;
        ASSERT_TRUE(std::isfinite(got.rest[i])) << i;
      }
    }
  // A value that the bound does not touch arrives whole, beside one that it does.
  const Outcome got = send("demo:chunk=2,density=1", matrix(1, 4), {1e30f, 1e30f, 3, 5});
  EXPECT_NEAR(got.decoded[2], 3, 1e-6);
  EXPECT_NEAR(got.decoded[3], 5, 1e-6);
  EXPECT_GT(got.decoded[0], 1e25f);
}

TEST(Demo, RefusesCoefficientsThatNoEncoderWrites) {
  const StreamSpec stream = matrix(4, 4);
  const auto decoder = make_codec("demo").value().codec->make_decoder(stream);
  const std::vector<uint32_t> position = {3};
  std::vector<float> out(16);
  for (const auto& [value, fine] :
       {std::pair{0x1p86f, true}, {0x1p87f, true}, {0x1.8p87f, false}}) {
    std::vector<std::byte> payload(max_sparse_size(16, 1, ValueFormat::kFp32));
    payload.resize(
        write_sparse(position, std::span(&value, 1), ValueFormat::kFp32, std::span(payload)));
    const Status status = decoder->decode_add(payload, 1, out);
    EXPECT_EQ(status.is_ok(), fine) << value;
    if (!fine) {
      EXPECT_EQ(status.code(), ErrorCode::kCorrupt);
      EXPECT_THAT(status.message(), HasSubstr("demo"));
    }
  }
}

}  // namespace
}  // namespace thinwire
