// PowerSGD: what a product of thin matrices can hold, what is kept from step to step, and no NaN.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "core/random.h"
#include "thinwire/codec.h"

namespace thinwire {
namespace {

using Values = std::vector<float>;
using Bytes = std::vector<std::byte>;

StreamSpec matrix(size_t rows, size_t columns) {
  return single_tensor({.name = "w", .shape = {rows, columns}, .kind = TensorKind::kLinear});
}

// A random matrix of this rank: its singular values are about 1, 1/2, 1/4, ...
Values of_rank(size_t rank, size_t rows, size_t columns, uint64_t seed = 1) {
  Values values(rows * columns);
  for (size_t c = 0; c < rank; ++c)
    for (size_t i = 0; i < rows; ++i)
      for (size_t j = 0; j < columns; ++j)
        values[i * columns + j] +=
            std::ldexp(random_normal({.seed = seed}, c * rows + i) *
                           random_normal({.seed = seed + 100}, c * columns + j),
                       -static_cast<int>(c));
  return values;
}

double norm(const Values& values) {
  double sum = 0;
  for (const float x : values) sum += double{x} * x;
  return std::sqrt(sum);
}

// An encoder of one stream, step after step.
class Course {
 public:
  Course(const std::string& spec, StreamSpec stream)
      : codec(std::move(make_codec(spec).value().codec)),
        stream_(std::move(stream)),
        encoder(codec->make_encoder(stream_)),
        payload(codec->max_encoded_size(stream_)) {}

  // What arrives; `rest` is what is left.
  Values step(const Values& values, uint64_t number) {
    rest.resize(values.size());
    EXPECT_EQ(encoder->encode({.values = values}, {.step = number}, payload, rest).size,
              payload.size());
    encoder->commit();
    Values decoded(values.size());
    codec->make_decoder(stream_)->decode_add(payload, 1, decoded).or_throw();
    return decoded;
  }

  std::unique_ptr<const Codec> codec;
  StreamSpec stream_;
  std::unique_ptr<Encoder> encoder;
  Bytes payload;
  Values rest;
};

TEST(Powersgd, FullRankLosesNothing) {
  for (const auto& [rows, columns] : {std::pair(6, 9), std::pair(9, 6), std::pair(7, 7)}) {
    Course run("powersgd:rank=99,min_compression=0", matrix(rows, columns));
    for (uint64_t step = 0; step < 3; ++step) {
      const Values values = of_rank(3 + step, rows, columns, step + 1);
      run.step(values, step);
      EXPECT_LE(norm(run.rest), 2e-6 * norm(values)) << rows << ", step " << step;
    }
  }
}

TEST(Powersgd, AMatrixOfThatRankArrivesInOneStep) {
  for (const size_t rank : {1, 2, 4}) {
    Course run("powersgd:rank=" + std::to_string(rank), matrix(60, 45));
    for (uint64_t step = 0; step < 3; ++step) {
      const Values values = of_rank(rank, 60, 45, 10 * step + rank);
      run.step(values, step);
      EXPECT_LE(norm(run.rest), 1e-5 * norm(values)) << rank << ", step " << step;
    }
  }
}

// Matrices of one shape are not one matrix.
TEST(Powersgd, TensorsOfEqualShapeHaveFactorsOfTheirOwn) {
  const StreamSpec two{
      .name = "two",
      .tensors = {{.name = "a", .shape = {20, 30}}, {.name = "b", .shape = {20, 30}}}};
  for (const std::string spec : {"powersgd:rank=1", "powersgd:rank=1,alternate=true"}) {
    Course run(spec, two);
    Values values = of_rank(1, 20, 30, 3);
    const Values second = of_rank(1, 20, 30, 4);
    values.insert(values.end(), second.begin(), second.end());
    for (uint64_t step = 0; step < 2; ++step) run.step(values, step);
    EXPECT_LE(norm(run.rest), 1e-5 * norm(values)) << spec;
  }
}

// Power iteration: of a matrix that stays, the part that arrives nears what the best product holds.
TEST(Powersgd, TheFactorsOfTheStepBeforeAreWhereTheNextOneStarts) {
  const Values values = of_rank(8, 50, 70);
  const auto left_after = [&](const std::string& spec, uint64_t steps) {
    Course run(spec, matrix(50, 70));
    for (uint64_t step = 0; step < steps; ++step) run.step(values, step);
    return norm(run.rest) / norm(values);
  };
  const double once = left_after("powersgd:rank=2", 1);
  const double often = left_after("powersgd:rank=2", 20);
  EXPECT_LT(often, 0.9 * once);
  EXPECT_NEAR(left_after("powersgd:rank=2", 40), often, 0.002);
  EXPECT_GT(left_after("powersgd:rank=2,warm_start=false", 20), 1.02 * often);
  EXPECT_NEAR(left_after("powersgd:rank=2,alternate=true", 40), often, 0.002);
}

// Even steps renew P, odd ones Q; the first projects on the columns of the Q that it starts with.
TEST(Powersgd, AlternatingStepsProjectFromTheFirstOn) {
  for (const uint64_t first : {0, 1}) {
    Course run("powersgd:rank=3,alternate=true", matrix(20, 30));
    const Values values = of_rank(9, 20, 30);
    const Values decoded = run.step(values, first);
    EXPECT_GT(norm(decoded), 0.05 * norm(values));
    double dot = 0;  // what is left of a projection is orthogonal to it
    for (size_t i = 0; i < values.size(); ++i) dot += double{decoded[i]} * run.rest[i];
    EXPECT_NEAR(dot, 0, 1e-5 * norm(decoded) * norm(values)) << first;
    const auto rounds = run.codec->rounds(matrix(20, 30), first == 1);
    ASSERT_EQ(rounds.size(), 1u);
    Bytes offered(rounds[0].size);
    EXPECT_EQ(run.encoder->offer(0, {.values = values}, {.step = first}, offered), offered.size());
    run.encoder->rollback();
    EXPECT_EQ(offered.size(), first == 1 ? 360u : 240u);

    const Values thin = of_rank(3, 20, 30, 5);  // two steps take hold of it
    run.step(thin, first + 1);
    run.step(thin, first + 2);
    EXPECT_LE(norm(run.rest), 1e-5 * norm(thin));
  }
}

// Columns that vanish are drawn again: neither NaN nor silence for good.
TEST(Powersgd, ZerosAndThinMatricesLoseNoColumn) {
  for (const std::string spec : {"powersgd:rank=3", "powersgd:rank=3,alternate=true"}) {
    Course run(spec, matrix(40, 30));
    uint64_t step = 0;
    for (const Values& values : {Values(1200), of_rank(1, 40, 30), Values(1200)}) {
      const Values decoded = run.step(values, step++);
      for (const float x : decoded) ASSERT_TRUE(std::isfinite(x));
      if (norm(values) == 0) {
        EXPECT_EQ(norm(decoded), 0);
      }
    }
    const Values values = of_rank(3, 40, 30);
    for (int i = 0; i < 3; ++i) run.step(values, step++);
    EXPECT_LE(norm(run.rest), 1e-5 * norm(values)) << spec;
  }
}

TEST(Powersgd, HugeValuesDoNotOverflow) {
  constexpr float kMax = std::numeric_limits<float>::max();
  for (const std::string spec : {"powersgd", "powersgd:rank=1,alternate=true"}) {
    Course run(spec, matrix(30, 40));
    Values values(1200, kMax);
    for (size_t i = 0; i < values.size(); i += 7) values[i] = -kMax;
    for (uint64_t step = 0; step < 4; ++step)
      for (const float x : run.step(values, step)) ASSERT_TRUE(std::isfinite(x));
  }
}

TEST(Powersgd, SmallAndFlatTensorsTravelAsTheyAre) {
  const StreamSpec stream{.name = "s",
                          .tensors = {{.name = "conv", .shape = {8, 4, 3, 3}},  // 288 values
                                      {.name = "bias", .shape = {288}},         // one dimension
                                      {.name = "small", .shape = {4, 5}},       // 18 in factors
                                      {.name = "none", .shape = {0, 5}}}};
  Course run("powersgd:rank=2", stream);
  EXPECT_EQ(run.payload.size(), 4u * (2 * (8 + 36) + 288 + 20));
  const auto rounds = run.codec->rounds(stream, false);
  ASSERT_EQ(rounds.size(), 2u);
  EXPECT_EQ(rounds[0].size, 4u * (2 * 8 + 288 + 20));
  EXPECT_EQ(rounds[1].size, 4u * 2 * 36);
  const Values values = of_rank(1, 1, stream.count());
  const Values decoded = run.step(values, 0);
  for (size_t i = 288; i < values.size(); ++i) {
    EXPECT_EQ(decoded[i], values[i]);
    EXPECT_EQ(run.rest[i], 0);
  }
  EXPECT_GT(norm(run.rest), 0);
}

TEST(Powersgd, AnotherRankStartsAfreshAndAnotherShapeIsRefused) {
  Course two("powersgd:rank=2", matrix(30, 20)), three("powersgd:rank=3", matrix(30, 20));
  Course other("powersgd:rank=2", matrix(20, 60)), again("powersgd:rank=2", matrix(30, 20));
  const Values values = of_rank(9, 30, 20);
  two.step(values, 0);
  Course fresh("powersgd:rank=3", matrix(30, 20));
  ASSERT_TRUE(three.encoder->load(two.encoder->save()).is_ok());
  EXPECT_EQ(three.step(values, 1), fresh.step(values, 1));
  EXPECT_FALSE(other.encoder->load(two.encoder->save()).is_ok());
  ASSERT_TRUE(again.encoder->load(two.encoder->save()).is_ok());
  EXPECT_EQ(again.step(values, 1), two.step(values, 1));
}

// Skipped steps leave no trace in the factors.
TEST(Powersgd, RollbackForgetsTheStep) {
  for (const std::string spec : {"powersgd", "powersgd:alternate=true"}) {
    Course straight(spec, matrix(30, 20)), bumpy(spec, matrix(30, 20));
    for (uint64_t step = 0; step < 5; ++step) {
      const Values other = of_rank(5, 30, 20, 77 + step);
      bumpy.encoder->encode({.values = other}, {.step = step}, bumpy.payload, {});
      bumpy.encoder->rollback();
      const Values values = of_rank(6, 30, 20, step);
      EXPECT_EQ(bumpy.step(values, step), straight.step(values, step));
    }
  }
}

TEST(Powersgd, RefusesFactorsWhoseProductCouldOverflow) {
  Course run("powersgd:rank=1", matrix(30, 40));
  run.step(of_rank(1, 30, 40), 0);
  const auto decoder = run.codec->make_decoder(run.stream_);
  Values out(1200);
  ASSERT_TRUE(decoder->decode_add(run.payload, 1, out).is_ok());
  for (const float bad : {1e30f, std::numeric_limits<float>::infinity(), NAN}) {
    Bytes payload = run.payload;
    const float large = std::isfinite(bad) ? bad : 1;
    for (const size_t at : {0, 30}) {  // in P and in Q
      std::memcpy(&payload[4 * at], &large, 4);
      if (at == 0) std::memcpy(&payload[4 * at], &bad, 4);
    }
    EXPECT_EQ(decoder->decode_add(payload, 1, out).code(), ErrorCode::kCorrupt) << bad;
  }
}

}  // namespace
}  // namespace thinwire
