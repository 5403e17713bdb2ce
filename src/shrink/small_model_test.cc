// Tests of small models: exact, half and clustered arrays, changes since another file, any bytes.
// SPDX-License-Identifier: Apache-2.0
#include "shrink/small_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <ctime>
#include <functional>
#include <limits>

#include "core/checksum.h"
#include "core/random.h"

namespace thinwire {
namespace {

using ::testing::HasSubstr;

std::vector<float> normal(size_t size, uint64_t seed) {
  const RandomKey key{.seed = seed, .use = RandomUse::kTest};
  std::vector<float> values;
  for (uint64_t i = 0; i < size; ++i) values.push_back(random_normal(key, i));
  return values;
}

SmallArray clustered(const std::string& name, const std::vector<float>& values, int bits) {
  SmallArray array{.exact = make_state(name, std::span<const float>(), OnResize::kCopy),
                   .clusters = make_clusters(values, {.bits = bits, .prune = 0.2, .keep = 0.01})};
  array.exact.shape = {values.size() / 4, 4};
  return array;
}

// `moved` values of the clustered arrays differ from those of the model with moved = 0.
SmallModel sample(size_t moved = 0) {
  auto first = normal(400, 1), second = normal(1200, 2);
  for (size_t i = 0; i < moved; ++i) first[7 * i % 400] = second[11 * i % 1200] = 0.3f;
  const std::vector<float> bias = {1.25f, -3, 1e-42f, std::numeric_limits<float>::quiet_NaN()};
  const int64_t count = -9;
  SmallModel model = {clustered("first.weight", first, 3), clustered("second.weight", second, 4)};
  model.push_back({.exact = make_state("bias", std::span(bias), OnResize::kShared)});
  model.push_back({.exact = make_state("count", std::span(&count, 1), OnResize::kCopy)});
  model.push_back(
      make_half(make_state("m", std::span<const float>(normal(50, 3)), OnResize::kCopy)));
  return model;
}

void expect_same(const SmallModel& a, const SmallModel& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].exact.name, b[i].exact.name);
    EXPECT_EQ(a[i].exact.type, b[i].exact.type);
    EXPECT_EQ(a[i].exact.shape, b[i].exact.shape);
    EXPECT_EQ(a[i].exact.on_resize, b[i].exact.on_resize);
    EXPECT_EQ(a[i].exact.data, b[i].exact.data);
    EXPECT_EQ(a[i].clusters, b[i].clusters);
    EXPECT_EQ(a[i].half, b[i].half);
  }
}

TEST(SmallModel, ComesBackAlone) {
  const SmallFile file = write_small_model(sample());
  EXPECT_TRUE(file.alone);
  EXPECT_TRUE(stands_alone(file.bytes));
  expect_same(read_small_model("f", file.bytes).value(), sample());
  expect_same(read_small_model("f", write_small_model({}).bytes).value(), {});
}

TEST(SmallModel, ComesBackAsChangesWhichAreSmaller) {
  const SmallModel before = sample(), after = sample(20);
  const SmallFile base = write_small_model(before);
  const uint64_t sum = sum_of_small_model(base.bytes);
  const SmallFile file = write_small_model(after, &before, sum);
  EXPECT_FALSE(file.alone);
  EXPECT_FALSE(stands_alone(file.bytes));
  EXPECT_LT(file.bytes.size(), write_small_model(after).bytes.size());
  expect_same(read_small_model("f", file.bytes, &before, sum).value(), after);

  const auto status = [&](const SmallModel* given, uint64_t given_sum) {
    return read_small_model("f", file.bytes, given, given_sum).status();
  };
  EXPECT_EQ(status(nullptr, 0).code(), ErrorCode::kMismatch);
  EXPECT_EQ(status(&before, sum + 1).code(), ErrorCode::kMismatch);
  EXPECT_THAT(status(&before, sum + 1).message(), HasSubstr("f: does not follow"));
}

TEST(SmallModel, OtherClustersOrShapesAreNotCodedAsChanges) {
  const SmallModel before = sample();
  SmallModel after = {clustered("first.weight", normal(400, 1), 2),
                      clustered("second.weight", normal(1200, 2), 4)};
  after[1].exact.shape = {300, 2, 2};
  EXPECT_TRUE(write_small_model(after, &before, 5).alone);
  const SmallModel none;
  EXPECT_TRUE(write_small_model(after, &none, 5).alone);
}

TEST(SmallModel, ExpandGivesTheCentresOfTheClusters) {
  const SmallModel model = sample();
  const StateArrays arrays = expand(model).value();
  ASSERT_EQ(arrays.size(), model.size());
  std::vector<float> values(400);
  std::memcpy(values.data(), arrays[0].data.data(), 1600);
  const Clusters& clusters = *model[0].clusters;
  size_t kept = 0;
  for (size_t i = 0; i < 400; ++i) {
    const size_t number = clusters.numbers[i];
    float want = 0;
    if (number == 0 || number == 10) want = clusters.kept[kept++];
    if (number >= 1 && number <= 4) want = clusters.centres[number - 1];
    if (number >= 6 && number <= 9) want = clusters.centres[number - 2];
    EXPECT_EQ(values[i], want);
  }
  EXPECT_EQ(arrays[2].data, model[2].exact.data);
  EXPECT_EQ(arrays[0].shape, (std::vector<uint64_t>{100, 4}));
}

TEST(SmallModel, HalfRoundsToTheNearestOfSixteenBits) {
  const std::vector<float> values = {1,
                                     1 + 0x1p-9f,
                                     1 + 0x1p-8f,
                                     1 + 0x3p-8f,
                                     -3.14159265f,
                                     0,
                                     std::numeric_limits<float>::infinity(),
                                     3e-45f};
  const SmallArray half = make_half(make_state("h", std::span(values), OnResize::kCopy));
  std::vector<float> out(values.size());
  ASSERT_TRUE(copy_state({half.exact}, "h", std::span(out)));
  EXPECT_EQ(out, (std::vector<float>{1, 1, 1, 1 + 0x4p-8f, -3.140625f, 0,
                                     std::numeric_limits<float>::infinity(), 0}));
  const float nan = std::bit_cast<float>(0x7F800001u);
  const SmallArray kept = make_half(make_state("n", std::span(&nan, 1), OnResize::kCopy));
  ASSERT_TRUE(copy_state({kept.exact}, "n", std::span(out).first(1)));
  EXPECT_TRUE(std::isnan(out[0]));
  const int64_t whole[] = {5};
  EXPECT_FALSE(make_half(make_state("i", std::span(whole), OnResize::kCopy)).half);
}

// Past the checksum too, which random bytes never meet.
void with_damage(const std::vector<std::byte>& bytes,
                 const std::function<void(std::span<const std::byte>)>& check) {
  const RandomKey key{.seed = 23, .use = RandomUse::kTest};
  for (uint64_t i = 0; i < 4000; ++i) {
    auto damaged = bytes;
    const uint64_t draw = 4 * i;
    const size_t most = i % 2 == 0 ? damaged.size() : 120;  // as often in the head as anywhere
    damaged[random_below(key, draw, most)] =
        static_cast<std::byte>(random_below(key, draw + 1, 256));
    if (random_below(key, draw + 2, 4) == 0)
      damaged.resize(random_below(key, draw + 3, damaged.size()) + 8);
    const auto body = std::span(damaged).first(damaged.size() - 8);
    const uint64_t sum = checksum(body);
    std::memcpy(damaged.data() + body.size(), &sum, 8);
    check(damaged);
  }
}

TEST(SmallModel, AnyBytesAreAModelOrAnError) {
  const SmallModel before = sample();
  int refused = 0, read = 0;
  with_damage(write_small_model(before).bytes, [&](std::span<const std::byte> bytes) {
    const auto model = read_small_model("f", bytes);
    if (!model) return void(++refused);
    ++read;
    (void)expand(read_small_model("f", bytes).value());
  });
  const uint64_t sum = 77;
  with_damage(write_small_model(sample(9), &before, sum).bytes,
              [&](auto bytes) { refused += !read_small_model("f", bytes, &before, sum); });
  EXPECT_GT(refused, 3000);
  EXPECT_GT(read, 10);
}

// What other formats cannot hold either.
TEST(SmallModel, NamesAndShapesThatNoReaderTakesAreRefused) {
  const auto why = [](const std::string& name, std::vector<uint64_t> shape) {
    SmallArray array{.exact = make_state(name, std::span<const float>(), OnResize::kCopy)};
    array.exact.shape = std::move(shape);
    return read_small_model("f", write_small_model({array}).bytes).status().message();
  };
  EXPECT_EQ(why("gr\u00fc\u00df\u20ac\U0001F600", {0}), "");
  EXPECT_EQ(why("w", std::vector<uint64_t>(64, 0)), "");
  EXPECT_EQ(why("w", {uint64_t{INT64_MAX}, 0}), "");
  for (const std::string bad : {"\x80", "a\xC3", "\xC0\x80", "\xE0\x80\x80", "\xED\xA0\x80",
                                "\xF4\x90\x80\x80", "\xFF", "\xE2\x82z"})
    EXPECT_EQ(why(bad, {0}), "f: array 0 has a name that is not UTF-8") << bad;
  EXPECT_THAT(why("__metadata__", {0}), HasSubstr("f: array 0 has the name '__metadata__'"));
  EXPECT_EQ(why("w", std::vector<uint64_t>(65, 0)), "f: array 'w' has more than 64 dimensions");
  EXPECT_EQ(why("w", {0, uint64_t{1} << 63}), "f: array 'w' has an impossible shape");
}

// The most predictable values come back; more than their bytes can stand for are refused before
// memory is asked for.
TEST(SmallModel, ValuesAreAtMostWhatTheirBytesCanStandFor) {
  SmallArray array{.exact = make_state("w", std::span<const float>(), OnResize::kCopy),
                   .clusters = Clusters{.centres = {-1, 1}, .numbers = {}, .kept = {}}};
  array.clusters->numbers.assign(500'000, 2);
  array.exact.shape = {500'000};
  const SmallModel model = {array};
  const SmallFile alone = write_small_model(model);
  const SmallFile changes = write_small_model(model, &model, sum_of_small_model(alone.bytes));
  EXPECT_FALSE(changes.alone);
  EXPECT_LT(changes.bytes.size(), 600u);
  expect_same(read_small_model("f", alone.bytes).value(), model);
  expect_same(read_small_model("f", changes.bytes, &model, sum_of_small_model(alone.bytes)).value(),
              model);

  auto hostile = alone.bytes;
  const size_t extent = 20 + 2 + 1 + 4;  // after the head, the name, the types
  const uint64_t values = 600 * alone.bytes.size();
  std::memcpy(hostile.data() + extent, &values, 8);
  const uint64_t sum = checksum(std::span(hostile).first(hostile.size() - 8));
  std::memcpy(hostile.data() + hostile.size() - 8, &sum, 8);
  EXPECT_EQ(read_small_model("f", hostile).status().message(),
            "f: array 'w' has more values than its bytes can stand for");
}

// As many as one wishes, with the changes of few bytes each.
TEST(SmallModel, TimeToReadGrowsWithTheFile) {
  const SmallArray pattern = clustered("w", normal(40, 1), 4);
  SmallModel model;
  for (size_t i = 0; i < 40'000; ++i) {
    model.push_back(pattern);
    model.back().exact.name = std::to_string(1'000'000 + i);
  }
  const SmallFile alone = write_small_model(model);
  const uint64_t sum = sum_of_small_model(alone.bytes);
  const SmallFile changes = write_small_model(model, &model, sum);
  ASSERT_FALSE(changes.alone);
  // Of the processor, which other programs do not change.
  const auto seconds = [&](const SmallFile& file) {
    const std::clock_t begin = std::clock();
    EXPECT_TRUE(read_small_model("f", file.bytes, &model, sum));
    return static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
  };
  const double by_itself = seconds(alone);
  EXPECT_LT(seconds(changes), 10 * by_itself);  // by a search through all arrays, 50 times and more
}

TEST(SmallModel, EveryCutAndFlippedBitIsNoticed) {
  const auto bytes = write_small_model(sample()).bytes;
  for (size_t size = 0; size < bytes.size(); ++size)
    ASSERT_FALSE(read_small_model("f", std::span(bytes).first(size))) << size;
  for (size_t i = 0; i < bytes.size(); ++i) {
    auto flipped = bytes;
    flipped[i] ^= std::byte{static_cast<unsigned char>(1u << i % 8)};
    ASSERT_FALSE(read_small_model("f", flipped)) << i;
  }
}

}  // namespace
}  // namespace thinwire
