// Tests of chains: the last file's values, and the name of the file that is wrong.
// SPDX-License-Identifier: Apache-2.0
#include "shrink/small_chain.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/random.h"

namespace thinwire {
namespace {

using ::testing::HasSubstr;

SmallModel model_at(uint64_t time) {
  const RandomKey key{.seed = 6, .use = RandomUse::kTest};
  std::vector<float> values;
  for (uint64_t i = 0; i < 600; ++i)
    values.push_back(random_normal(key, i) +
                     0.01f * static_cast<float>(time) * random_normal(key, i + 600));
  SmallArray array{.exact = make_state("w", std::span<const float>(), OnResize::kCopy),
                   .clusters = make_clusters(values, {.bits = 3, .prune = 0.3})};
  array.exact.shape = {600};
  return {array};
}

std::vector<std::vector<std::byte>> chain_of(size_t length) {
  std::vector<std::vector<std::byte>> files;
  SmallModel before;
  for (size_t i = 0; i < length; ++i) {
    const SmallModel model = model_at(i);
    files.push_back(write_small_model(model, i > 0 ? &before : nullptr,
                                      i > 0 ? sum_of_small_model(files.back()) : 0)
                        .bytes);
    before = model;
  }
  return files;
}

std::vector<SmallFileBytes> named(const std::vector<std::vector<std::byte>>& files) {
  std::vector<SmallFileBytes> out;
  for (size_t i = 0; i < files.size(); ++i) out.push_back({small_file_name(i), files[i]});
  return out;
}

TEST(SmallChain, NamesSayThePlace) {
  EXPECT_EQ(small_file_name(0), "model-000.small");
  EXPECT_EQ(small_file_name(42), "model-042.small");
  EXPECT_EQ(place_of_small_file("model-042.small"), 42u);
  for (const char* other : {"model.small", "model-42.small", "model-04x.small", "model-042.smal",
                            "model.safetensors", "", "xmodel-042.small"})
    EXPECT_EQ(place_of_small_file(other), std::nullopt) << other;
}

TEST(SmallChain, GivesTheValuesOfTheLastFile) {
  const auto files = chain_of(5);
  for (size_t length = 1; length <= 5; ++length) {
    const auto all = named(files);
    const auto arrays = expand_small_model(std::span(all).first(length)).value();
    EXPECT_EQ(arrays[0].data, expand(model_at(length - 1)).value()[0].data) << length;
    if (length > 1) {
      EXPECT_FALSE(stands_alone(files[length - 1])) << length;
    }
  }
}

TEST(SmallChain, TheFileThatIsWrongIsNamed) {
  const auto failure = [](const std::vector<std::vector<std::byte>>& files) {
    return expand_small_model(named(files)).status().message();
  };
  auto damaged = chain_of(4);
  damaged[1][40] ^= std::byte{1};
  EXPECT_THAT(failure(damaged), HasSubstr("model-001.small: damaged"));
  auto missing = chain_of(4);
  missing.erase(missing.begin() + 1);
  EXPECT_THAT(failure(missing), HasSubstr("model-001.small: does not follow"));
  missing.erase(missing.begin());
  EXPECT_THAT(failure(missing), HasSubstr("model-000.small: follows another file"));
  auto cut = chain_of(4);
  cut[3].resize(10);
  EXPECT_THAT(failure(cut), HasSubstr("model-003.small: truncated"));
  EXPECT_FALSE(expand_small_model({}));
}

}  // namespace
}  // namespace thinwire
