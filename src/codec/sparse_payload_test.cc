// Sparse payloads: the documented bytes, what arrives and what is left, and hostile bytes.
// SPDX-License-Identifier: Apache-2.0
#include "codec/sparse_payload.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "core/random.h"
#include "kernel/for_each_target.h"
#include "kernel/position_code.h"

namespace thinwire {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Bytes = std::vector<std::byte>;

constexpr ValueFormat kFormats[] = {ValueFormat::kFp32, ValueFormat::kFp16, ValueFormat::kBf16,
                                    ValueFormat::kInt8, ValueFormat::kInt2, ValueFormat::kSign,
                                    ValueFormat::kMean};

struct Sparse {
  size_t count = 0;
  std::vector<uint32_t> positions;
  std::vector<float> values;
};

Sparse random_sparse(size_t count, double density, float scale = 1.0f) {
  Sparse made{.count = count, .positions = {}, .values = {}};
  for (size_t i = 0; i < count; ++i) {
    if (random_unit({.seed = 5}, i) >= density) continue;
    made.positions.push_back(static_cast<uint32_t>(i));
    made.values.push_back(scale * random_normal({.seed = 6}, i));
  }
  return made;
}

Bytes write(const Sparse& from, ValueFormat format, std::span<float> left = {}) {
  Bytes payload(max_sparse_size(from.count, from.positions.size(), format));
  payload.resize(write_sparse(from.positions, from.values, format, payload, left));
  return payload;
}

// What values are after the journey.
std::vector<float> arrived(const std::vector<float>& values, ValueFormat format) {
  std::vector<std::byte> bytes(value_bytes(format, values.size()));
  std::vector<float> decoded(values.size());
  const float mean = sent_mean(format, values.size(), [&](size_t i) { return values[i]; });
  ValueWriter writer(format, mean, bytes);
  for (size_t i = 0; i < values.size(); i += kValueBlock)
    writer.write(std::span(values).subspan(i, std::min(kValueBlock, values.size() - i)), {});
  ValueReader reader(format, bytes);
  for (size_t i = 0; i < values.size(); i += kValueBlock)
    reader.read(std::span(decoded).subspan(i, std::min(kValueBlock, values.size() - i)));
  EXPECT_TRUE(reader.good());
  return decoded;
}

std::vector<int> as_ints(const Bytes& bytes) {
  std::vector<int> ints;
  for (const std::byte byte : bytes) ints.push_back(std::to_integer<int>(byte));
  return ints;
}

// Adds from a copy of exactly the payload's size, into a vector with guards, so that reads and
// writes outside show.
Status add(std::span<const std::byte> payload, ValueFormat format, float weight,
           std::vector<float>& out) {
  const Bytes exact(payload.begin(), payload.end());
  std::vector<float> guarded(out.size() + 2, 12345.0f);
  std::copy(out.begin(), out.end(), guarded.begin() + 1);
  const Status status =
      add_sparse(exact, format, weight, std::span(guarded).subspan(1, out.size()));
  EXPECT_EQ(guarded.front(), 12345.0f);
  EXPECT_EQ(guarded.back(), 12345.0f);
  out.assign(guarded.begin() + 1, guarded.end() - 1);
  return status;
}

TEST(SparsePayload, HasTheDocumentedBytes) {
  const Sparse sparse{.count = 12, .positions = {1, 4, 5}, .values = {1.0f, -2.0f, 0.5f}};
  // Gaps 1, 2, 0: mean 1, so b = 0 and a bitmap 0 1 0 0 1 1.
  EXPECT_THAT(as_ints(write(sparse, ValueFormat::kFp32)),
              ElementsAre(3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x80, 0x3f, 0, 0, 0, 0xc0, 0, 0, 0, 0x3f, 0,
                          0b110010));
  EXPECT_THAT(as_ints(write(sparse, ValueFormat::kFp16)),
              ElementsAre(3, 0, 0, 0, 1, 0, 0, 0, 0, 0x3c, 0, 0xc0, 0, 0x38, 0, 0b110010));
  EXPECT_THAT(as_ints(write(sparse, ValueFormat::kBf16)),
              ElementsAre(3, 0, 0, 0, 2, 0, 0, 0, 0x80, 0x3f, 0, 0xc0, 0, 0x3f, 0, 0b110010));
  EXPECT_THAT(as_ints(write({.count = 12, .positions = {}, .values = {}}, ValueFormat::kFp32)),
              ElementsAre(0, 0, 0, 0, 0, 0, 0, 0));
}

TEST(SparsePayload, ArrivesAndLeavesTheDifferenceOnEveryTarget) {
  for (const ValueFormat format : kFormats) {
    for (const float scale : {1.0f, 1e-6f, 1e20f, 3e37f}) {
      for (const size_t count : {1, 500, 512, 40'000}) {
        const Sparse sparse = random_sparse(count, count > 1000 ? 0.1 : 1.0, scale);
        const Bytes expected = write(sparse, format);
        std::vector<float> values(count, 0.25f), want(count, 2.0f), want_rest(count, 0.25f);
        const auto decoded = arrived(sparse.values, format);
        for (size_t i = 0; i < sparse.positions.size(); ++i) {
          const float sent = decoded[i];
          values[sparse.positions[i]] = sparse.values[i];
          want[sparse.positions[i]] += 0.5f * sent;
          want_rest[sparse.positions[i]] = sparse.values[i] - sent;
        }
        kernel::for_each_target([&](std::string_view target) {
          SCOPED_TRACE(testing::Message() << target << ", format " << static_cast<int>(format)
                                          << ", scale " << scale << ", " << count << " values");
          std::vector<float> left(sparse.values.size(), 9.0f);
          EXPECT_EQ(write(sparse, format, left), expected);
          for (size_t i = 0; i < left.size(); ++i)
            ASSERT_EQ(left[i], want_rest[sparse.positions[i]]) << i;

          std::vector<float> rest(count, 0.25f);
          Bytes payload(max_sparse_size(count, sparse.positions.size(), format));
          payload.resize(write_sparse_at(sparse.positions, values, format, payload, rest));
          EXPECT_EQ(payload, expected);
          EXPECT_EQ(rest, want_rest);
          std::vector<float> same = values;
          EXPECT_EQ(write_sparse_at(sparse.positions, same, format, payload, same),
                    expected.size());
          EXPECT_EQ(payload, expected);
          EXPECT_EQ(same, want_rest);

          std::vector<float> out(count, 2.0f);
          EXPECT_TRUE(add(payload, format, 0.5f, out));
          EXPECT_EQ(out, want);
        });
      }
    }
  }
}

TEST(SparsePayload, SaturatesAndKeepsTheDifference) {
  const Sparse sparse{.count = 2, .positions = {0, 1}, .values = {1e30f, -3.4e38f}};
  std::vector<float> left(2), out(2);
  EXPECT_TRUE(add(write(sparse, ValueFormat::kFp16, left), ValueFormat::kFp16, 1.0f, out));
  EXPECT_THAT(out, ElementsAre(65504.0f, -65504.0f));
  EXPECT_THAT(left, ElementsAre(1e30f - 65504.0f, -3.4e38f + 65504.0f));
  out.assign(2, 0.0f);
  EXPECT_TRUE(add(write(sparse, ValueFormat::kBf16, left), ValueFormat::kBf16, 1.0f, out));
  EXPECT_EQ(out[1], -0x1.fep127f);
  EXPECT_EQ(left[1], -3.4e38f + 0x1.fep127f);
}

TEST(SparsePayload, NothingKeptTouchesNothing) {
  for (const size_t count : {0, 5}) {
    const Bytes payload =
        write({.count = count, .positions = {}, .values = {}}, ValueFormat::kBf16);
    std::vector<float> out(count, 3.0f);
    EXPECT_TRUE(add(payload, ValueFormat::kBf16, 1.0f, out));
    EXPECT_EQ(out, std::vector<float>(count, 3.0f));
  }
}

TEST(SparsePayload, NamesWhatIsWrong) {
  const Sparse sparse = random_sparse(1000, 0.05);
  const Bytes good = write(sparse, ValueFormat::kFp32);
  std::vector<float> out(1000);
  const auto expect_refused = [&](const Bytes& bytes, ErrorCode code, const char* words) {
    const Status status = add(bytes, ValueFormat::kFp32, 1.0f, out);
    EXPECT_EQ(status.code(), code);
    EXPECT_THAT(status.message(), HasSubstr(words));
  };
  expect_refused({}, ErrorCode::kBadLength, "cut short");
  expect_refused(Bytes(good.begin(), good.begin() + 40), ErrorCode::kBadLength, "cut short");
  expect_refused(write(sparse, ValueFormat::kFp16), ErrorCode::kCorrupt, "agreed format");

  Bytes bad = good;
  bad[7] = std::byte{1};
  expect_refused(bad, ErrorCode::kCorrupt, "agreed format");
  bad = good;
  bad[1] = std::byte{9};
  expect_refused(bad, ErrorCode::kCorrupt, "more values than the stream has");
  bad = good;
  bad.push_back(std::byte{0});
  expect_refused(bad, ErrorCode::kCorrupt, "positions");
  for (const float wrong :
       {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::quiet_NaN()}) {
    bad = good;
    std::memcpy(&bad[8 + 4 * 30], &wrong, sizeof wrong);
    expect_refused(bad, ErrorCode::kCorrupt, "not finite");
  }
  out.resize(sparse.positions.back());
  expect_refused(good, ErrorCode::kCorrupt, "positions");
}

TEST(SparsePayload, RefusesEveryTruncation) {
  for (const ValueFormat format : kFormats) {
    const Bytes good = write(random_sparse(2000, 0.3), format);
    for (size_t size = 0; size < good.size(); ++size) {
      std::vector<float> out(2000);
      EXPECT_FALSE(add(std::span(good).first(size), format, 1.0f, out)) << size;
    }
  }
}

// What is taken has positions below the count, in ascending order, and finite values.
TEST(SparsePayload, SurvivesDamage) {
  for (const ValueFormat format : kFormats) {
    size_t taken = 0, refused = 0;
    Bytes bytes = write(random_sparse(3000, 0.3), format);
    const Bytes good = bytes;
    for (uint64_t round = 0; round < 2000; ++round) {
      for (uint64_t i = 0; i < 4; ++i)
        bytes[random_below({.seed = 7}, 8 * round + i, bytes.size())] =
            static_cast<std::byte>(random_word({.seed = 8}, 8 * round + i));
      std::vector<float> out(3000);
      const bool ok = add(bytes, format, 1.0f, out).is_ok();
      ++(ok ? taken : refused);
      if (ok) {
        const SparseParts parts = check_sparse(bytes, format, out.size()).value();
        kernel::PositionReader positions(parts.positions, out.size(), parts.kept);
        int64_t last = -1;
        size_t kept = 0;
        for (auto block = positions.next(); !block.empty(); block = positions.next())
          for (const uint32_t position : block) {
            ASSERT_GT(int64_t{position}, last);
            ASSERT_LT(position, out.size());
            last = position;
            ++kept;
          }
        EXPECT_EQ(kept, parts.kept);
        EXPECT_TRUE(std::all_of(out.begin(), out.end(), [](float x) { return std::isfinite(x); }));
      }
      if (round % 3 == 0) bytes = good;
    }
    EXPECT_GT(taken, 0u);
    EXPECT_GT(refused, 0u);
  }
}

TEST(SparsePayload, ChecksWhatItAddsAndSaysWhereItLies) {
  for (const ValueFormat format : kFormats) {
    const Sparse sparse = random_sparse(3000, 0.5);
    const Bytes good = write(sparse, format);
    const SparseParts parts = check_sparse(good, format, 3000).value();
    EXPECT_EQ(parts.kept, sparse.positions.size());
    EXPECT_EQ(parts.values.data(), good.data() + 8);
    EXPECT_EQ(parts.values.size(), value_bytes(format, parts.kept));
    EXPECT_EQ(parts.positions.data(), parts.values.data() + parts.values.size());
    EXPECT_EQ(8 + parts.values.size() + parts.positions.size(), good.size());
    ASSERT_EQ(parts.places.size(), (parts.kept + 511) / 512);
    for (size_t i = 0; i < parts.places.size(); ++i)
      EXPECT_EQ(parts.places[i].base, i == 0 ? 0 : sparse.positions[512 * i - 1] + 1);
    size_t refused = 0;
    for (uint64_t round = 0; round < 500; ++round) {
      Bytes bytes = good;
      if (round % 5 == 0)
        bytes.resize(random_below({.seed = 7}, round, bytes.size()));
      else
        bytes[random_below({.seed = 7}, round, round % 5 == 1 ? 12 : bytes.size())] =
            static_cast<std::byte>(random_word({.seed = 8}, round));
      std::vector<float> out(3000);
      const Status added = add(bytes, format, 1.0f, out);
      const auto checked = check_sparse(bytes, format, 3000);
      ASSERT_EQ(checked.status().code(), added.code());
      EXPECT_EQ(checked.status().message(), added.message());
      refused += !added;
    }
    EXPECT_GT(refused, 150u);
  }
}

TEST(SparsePayload, RefusesStreamsBeyond32Bits) {
  TensorSpec tensor{.name = "embedding", .shape = {65536, 65535}, .kind = TensorKind::kEmbedding};
  EXPECT_NO_THROW(require_sparse_stream("topk", single_tensor(tensor)));
  tensor.shape = {65536, 65536};
  EXPECT_THROW(require_sparse_stream("topk", single_tensor(tensor)), Error);
}

}  // namespace
}  // namespace thinwire
