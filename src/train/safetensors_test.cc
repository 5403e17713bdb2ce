// Tests of safetensors: bytes by hand, round trips, and corrupt files.
// SPDX-License-Identifier: Apache-2.0
#include "train/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

namespace thinwire {
namespace {

using ::testing::HasSubstr;

std::vector<std::byte> file_of(const std::string& header, const std::string& data) {
  std::vector<std::byte> bytes(8 + header.size() + data.size());
  const uint64_t size = header.size();
  std::memcpy(bytes.data(), &size, 8);
  std::memcpy(bytes.data() + 8, header.data(), header.size());
  std::memcpy(bytes.data() + 8 + header.size(), data.data(), data.size());
  return bytes;
}

TensorFile sample() {
  const float weights[] = {1, -2.5f, 3e-40f, 4, 5, 6};
  const double norm[] = {0.1, 1e300};
  const int64_t step[] = {-7};
  TensorFile file;
  file.metadata["format"] = "pt";
  file.arrays = {make_state("b/flags", std::span<const float>(), OnResize::kCopy),
                 make_state("conv1.weight", std::span(weights), OnResize::kOwedToMean),
                 make_state("norm", std::span(norm), OnResize::kShared),
                 make_state("a step", std::span(step), OnResize::kJoin)};
  file.arrays[1].shape = {2, 3};
  file.arrays.push_back({.name = "bytes",
                         .type = StateType::kUint8,
                         .shape = {3},
                         .data = std::vector<std::byte>(3, std::byte{9})});
  return file;
}

TEST(Safetensors, ReadsBytesWrittenByHand) {
  const auto bytes = file_of(
      R"({"x":{"dtype":"F32","shape":[1,2],"data_offsets":[0,8]},"__metadata__":{"k":"v"}})",
      std::string("\0\0\x80\x3f\0\0\0\xc0", 8));
  const TensorFile file = read_safetensors("f", bytes).value();
  ASSERT_EQ(file.arrays.size(), 1u);
  EXPECT_EQ(file.arrays[0].shape, (std::vector<uint64_t>{1, 2}));
  float values[2] = {};
  ASSERT_TRUE(copy_state(file.arrays, "x", values));
  EXPECT_EQ(values[0], 1.0f);
  EXPECT_EQ(values[1], -2.0f);
  EXPECT_EQ(file.metadata.at("k"), "v");
}

TEST(Safetensors, RoundTripKeepsEverythingAndAligns) {
  const TensorFile before = sample();
  const auto bytes = write_safetensors(before);
  const TensorFile after = read_safetensors("f", bytes).value();
  EXPECT_EQ(after.metadata, before.metadata);
  ASSERT_EQ(after.arrays.size(), before.arrays.size());
  for (const StateArray& array : before.arrays) {
    const auto found = std::find_if(after.arrays.begin(), after.arrays.end(),
                                    [&](const StateArray& a) { return a.name == array.name; });
    ASSERT_NE(found, after.arrays.end()) << array.name;
    EXPECT_EQ(found->type, array.type);
    EXPECT_EQ(found->shape, array.shape);
    EXPECT_EQ(found->on_resize, array.on_resize) << array.name;
    EXPECT_EQ(found->data, array.data);
  }
  uint64_t header = 0;
  std::memcpy(&header, bytes.data(), 8);
  EXPECT_EQ(header % 8, 0u);
  EXPECT_EQ(bytes, write_safetensors(before));
}

TEST(Safetensors, NothingIsAFileToo) {
  EXPECT_TRUE(read_safetensors("f", write_safetensors({})).value().arrays.empty());
}

TEST(Safetensors, EveryTruncationIsRefused) {
  const auto bytes = write_safetensors(sample());
  for (size_t size = 0; size < bytes.size(); ++size) {
    const auto result = read_safetensors("weights.st", std::span(bytes).first(size));
    ASSERT_FALSE(result) << size;
    ASSERT_THAT(result.status().message(), HasSubstr("weights.st: ")) << size;
  }
}

TEST(Safetensors, LiesAreRefused) {
  const struct {
    const char* header;
    const char* why;
  } lies[] = {
      {"[]", "not JSON"},
      {"{", "not JSON"},
      {R"({"x":1})", "no dtype"},
      {R"({"x":{"dtype":"BF16","shape":[2],"data_offsets":[0,4]}})", "type other than"},
      {R"({"x":{"dtype":7,"shape":[1],"data_offsets":[0,4]}})", "type other than"},
      {R"({"x":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", "not as long as"},
      {R"({"x":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", "impossible shape"},
      {R"({"x":{"dtype":"F32","shape":[1.0],"data_offsets":[0,4]}})", "impossible shape"},
      {R"({"x":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,0]}})",
       "impossible shape"},
      {R"({"x":{"dtype":"F32","shape":[],"data_offsets":[4,0]}})", "not as long as"},
      {R"({"x":{"dtype":"F32","shape":[],"data_offsets":[0]}})", "no offsets"},
      {R"({"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", "truncated"},
      {R"({"x":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})", "bytes follow"},
      {R"({"x":{"dtype":"U8","shape":[2],"data_offsets":[2,4]}})", "overlap or leave gaps"},
      {R"({"x":{"dtype":"F32","shape":[],"data_offsets":[0,4]},)"
       R"("y":{"dtype":"F32","shape":[],"data_offsets":[0,4]}})",
       "overlap or leave gaps"},
      {R"({"__metadata__":{"a":1}})", "metadata must be texts"},
      {R"({"__metadata__":"a"})", "metadata must be texts"},
  };
  for (const auto& lie : lies)
    EXPECT_THAT(read_safetensors("f", file_of(lie.header, "1234")).status().message(),
                HasSubstr(lie.why))
        << lie.header;
  auto bytes = file_of("{}", "");
  std::memset(bytes.data(), 0xff, 8);
  EXPECT_EQ(read_safetensors("f", bytes).status().code(), ErrorCode::kBadLength);
}

TEST(Safetensors, AnyByteFlippedNeverCrashes) {
  const auto good = write_safetensors(sample());
  for (size_t i = 0; i < good.size(); ++i) {
    for (const int flip : {0x01, 0x80, 0xff}) {
      auto bytes = good;
      bytes[i] ^= static_cast<std::byte>(flip);
      auto result = read_safetensors("f", bytes);
      if (!result) continue;
      for (const StateArray& array : result.value().arrays) {
        uint64_t size = size_of(array.type);
        for (const uint64_t extent : array.shape) size *= extent;
        ASSERT_EQ(array.data.size(), size);
      }
    }
  }
}

}  // namespace
}  // namespace thinwire
