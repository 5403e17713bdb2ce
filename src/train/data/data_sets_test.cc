// Data sets as tensors: values, splits, augmentation, and what is refused.
// SPDX-License-Identifier: Apache-2.0
#include "train/data/data_sets.h"

#include <gmock/gmock.h>
#include <torch/torch.h>

#include <filesystem>
#include <fstream>
#include <numeric>

#include "train/data/image_set.h"

namespace thinwire {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;

template <typename Call>
void expect_error(Call call, ErrorCode code, const std::string& words) {
  try {
    call();
    ADD_FAILURE() << "no error where '" << words << "' is expected";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    EXPECT_THAT(error.what(), HasSubstr(words));
  }
}

// `count` images of two channels whose pixels are all different from their neighbours'.
std::shared_ptr<const Images> some_images(int64_t count, int64_t height, int64_t width) {
  auto images = std::make_shared<Images>();
  images->pixels = (torch::arange(count * 2 * height * width) * 7 % 251)
                       .reshape({count, 2, height, width})
                       .to(torch::kByte);
  images->labels = torch::arange(count) % 3;
  images->classes = 3;
  images->mean = {0.5f, 0.25f};
  images->deviation = {0.5f, 2.0f};
  return images;
}

// What ImageSet's comment says, by tensor operations.
torch::Tensor normalised(const Images& images) {
  const torch::Tensor mean = torch::tensor(images.mean).reshape({1, 2, 1, 1});
  const torch::Tensor deviation = torch::tensor(images.deviation).reshape({1, 2, 1, 1});
  return (images.pixels.to(torch::kFloat) / 255 - mean) / deviation;
}

TEST(ImageSet, NormalisesItsPart) {
  const auto images = some_images(6, 4, 5);
  const auto set = make_image_set(images, 2, 3, true);
  EXPECT_EQ(set->size(), 3u);
  const Batch batch = set->fetch(std::vector<uint64_t>{2, 0}, {.training = false});
  const torch::Tensor order = torch::tensor({4, 2});
  EXPECT_TRUE(torch::equal(batch.inputs, normalised(*images).index_select(0, order)));
  EXPECT_TRUE(torch::equal(batch.targets, images->labels.index_select(0, order)));
  EXPECT_THROW(set->fetch(std::vector<uint64_t>{3}, {}), Error);
  EXPECT_THROW(make_image_set(images, 4, 3, true), Error);
  EXPECT_EQ(set->fetch({}, {}).inputs.size(0), 0);
}

// Every window of the padded image, mirrored and not, and how often a fetch gave it.
TEST(ImageSet, CropsAndFlips) {
  const auto images = some_images(400, 6, 9);
  const auto set = make_image_set(images, 0, 400, true);
  std::vector<uint64_t> ids(400);
  std::iota(ids.begin(), ids.end(), uint64_t{0});
  const torch::Tensor padded = torch::nn::functional::pad(
      normalised(*images), torch::nn::functional::PadFuncOptions({4, 4, 4, 4}));
  int down[9] = {}, right[9] = {}, flips = 0;
  const torch::Tensor fetched = set->fetch(ids, {.training = true, .seed = 3, .epoch = 5}).inputs;
  for (int64_t i = 0; i < 400; ++i) {
    int matches = 0;
    for (int64_t y = 0; y < 9; ++y) {
      for (int64_t x = 0; x < 9; ++x) {
        const torch::Tensor window = padded[i].slice(1, y, y + 6).slice(2, x, x + 9);
        for (const bool flip : {false, true}) {
          if (!torch::equal(fetched[i], flip ? window.flip(2) : window)) continue;
          ++matches;
          ++down[y];
          ++right[x];
          flips += flip ? 1 : 0;
        }
      }
    }
    EXPECT_EQ(matches, 1) << i;
  }
  // Expected 44.4 each, deviation 6.3; 200 flips, deviation 10.
  for (int i = 0; i < 9; ++i) {
    EXPECT_NEAR(down[i], 44, 26) << i;
    EXPECT_NEAR(right[i], 44, 26) << i;
  }
  EXPECT_NEAR(flips, 200, 40);
}

TEST(ImageSet, AugmentsBySeedEpochAndSampleAlone) {
  const auto set = make_image_set(some_images(50, 8, 8), 0, 50, true);
  std::vector<uint64_t> ids(50), reversed(50);
  std::iota(ids.begin(), ids.end(), uint64_t{0});
  std::iota(reversed.rbegin(), reversed.rend(), uint64_t{0});
  const FetchContext context{.training = true, .seed = 1, .epoch = 2};
  const torch::Tensor first = set->fetch(ids, context).inputs;
  EXPECT_TRUE(torch::equal(first, set->fetch(reversed, context).inputs.flip(0)));
  const FetchContext seed{.training = true, .seed = 2, .epoch = 2};
  const FetchContext epoch{.training = true, .seed = 1, .epoch = 3};
  EXPECT_FALSE(torch::equal(first, set->fetch(ids, seed).inputs));
  EXPECT_FALSE(torch::equal(first, set->fetch(ids, epoch).inputs));
}

class Folder : public testing::Test {
 protected:
  Folder() : folder_(fs::path(testing::TempDir()) / ("data_sets" + std::to_string(::getpid()))) {
    fs::create_directories(folder_);
  }
  ~Folder() override { fs::remove_all(folder_); }

  void write(const std::string& name, const std::string& content) {
    fs::create_directories((folder_ / name).parent_path());
    std::ofstream(folder_ / name, std::ios::binary) << content;
  }

  fs::path folder_;
};

std::string big_endian(uint32_t value) {
  std::string bytes;
  for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(value >> shift);
  return bytes;
}

std::string idx_images(uint32_t count) {
  std::string file = big_endian(0x803) + big_endian(count) + big_endian(2) + big_endian(2);
  for (uint32_t i = 0; i < count * 4; ++i) file += static_cast<char>(i);
  return file;
}

std::string idx_labels(uint32_t count, char first = 0) {
  std::string file = big_endian(0x801) + big_endian(count);
  for (uint32_t i = 0; i < count; ++i) file += static_cast<char>(i == 0 ? first : i % 10);
  return file;
}

class IdxFolder : public Folder {
 protected:
  IdxFolder() {
    write("fashion-mnist/train-images-idx3-ubyte", idx_images(12));
    write("fashion-mnist/train-labels-idx1-ubyte", idx_labels(12));
    write("fashion-mnist/t10k-images-idx3-ubyte", idx_images(5));
    write("fashion-mnist/t10k-labels-idx1-ubyte", idx_labels(5));
  }
  DataRequest request(uint64_t hold_out = 0) {
    return {.name = "fashion-mnist", .folder = folder_.string(), .hold_out = hold_out};
  }
};

TEST_F(IdxFolder, IsCutIntoSplits) {
  const DataSplits all = make_data_set(request());
  EXPECT_THAT(all.shape.input, ElementsAre(1, 2, 2));
  EXPECT_EQ(all.shape.classes, 10);
  EXPECT_EQ(all.train->size(), 12u);
  EXPECT_EQ(all.test->size(), 5u);
  EXPECT_EQ(all.held_out, nullptr);

  const DataSplits held = make_data_set(request(3));
  EXPECT_EQ(held.train->size(), 9u);
  ASSERT_NE(held.held_out, nullptr);
  EXPECT_EQ(held.held_out->size(), 3u);
  EXPECT_TRUE(torch::equal(held.held_out->fetch(std::vector<uint64_t>{0}, {}).inputs,
                           all.train->fetch(std::vector<uint64_t>{9}, {}).inputs));

  DataRequest few = request(3);
  few.train_samples = 4;
  few.test_samples = 2;
  const DataSplits small = make_data_set(few);
  EXPECT_EQ(small.train->size(), 4u);
  EXPECT_EQ(small.test->size(), 2u);
  EXPECT_EQ(small.held_out->size(), 2u);
}

TEST_F(IdxFolder, IsReadOnceWhileInUse) {
  const DataSplits first = make_data_set(request());
  write("fashion-mnist/train-images-idx3-ubyte", "broken");
  EXPECT_EQ(make_data_set(request()).train->size(), 12u);
}

TEST_F(IdxFolder, IsFoundUnderItsOwnName) {
  DataRequest itself = request();
  itself.folder += "/fashion-mnist/";
  EXPECT_EQ(make_data_set(itself).train->size(), 12u);
}

TEST_F(IdxFolder, RefusesWhatDoesNotFit) {
  expect_error([&] { make_data_set(request(12)); }, ErrorCode::kBadOption, "cannot hold out 12");
  write("fashion-mnist/t10k-labels-idx1-ubyte", idx_labels(4));
  expect_error([&] { make_data_set(request()); }, ErrorCode::kCorrupt, "4 labels for 5 images");
  write("fashion-mnist/t10k-labels-idx1-ubyte", idx_labels(5, 10));
  expect_error([&] { make_data_set(request()); }, ErrorCode::kCorrupt, "label 10 at 0");
  expect_error([&] { make_data_set(request()); }, ErrorCode::kCorrupt, "t10k-labels-idx1-ubyte");
}

TEST(DataSets, RefuseUnknownNamesAndSettings) {
  expect_error([] { make_data_set({.name = "imagenet"}); }, ErrorCode::kUnknownName,
               "known: fashion-mnist");
  expect_error([] { make_data_set({.name = "fashion-mnist", .augment = true}); },
               ErrorCode::kBadOption, "augment");
}

}  // namespace
}  // namespace thinwire
