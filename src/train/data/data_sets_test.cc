// Data sets as tensors: values, splits, augmentation, and what is refused.
// SPDX-License-Identifier: Apache-2.0
#include "train/data/data_sets.h"

#include <gmock/gmock.h>
#include <torch/torch.h>

#include <numeric>

#include "thinwire/trainer.h"
#include "train/data/data_test_files.h"
#include "train/data/image_set.h"
#include "train/data/log_mel.h"

namespace thinwire {
namespace {

using testing::ElementsAre;

std::vector<uint64_t> ids_below(uint64_t count) {
  std::vector<uint64_t> ids(count);
  std::iota(ids.begin(), ids.end(), uint64_t{0});
  return ids;
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
  const auto set = make_image_set(images, 2, 3, {.augment = true});
  EXPECT_EQ(set->size(), 3u);
  const Batch batch = set->fetch(std::vector<uint64_t>{2, 0}, {.training = false});
  const torch::Tensor order = torch::tensor({4, 2});
  EXPECT_TRUE(torch::equal(batch.inputs, normalised(*images).index_select(0, order)));
  EXPECT_TRUE(torch::equal(batch.targets, images->labels.index_select(0, order)));
  EXPECT_THROW(set->fetch(std::vector<uint64_t>{3}, {}), Error);
  EXPECT_THROW(make_image_set(images, 4, 3, {.augment = true}), Error);
  EXPECT_EQ(set->fetch({}, {}).inputs.size(0), 0);
}

// Every window of the padded image, mirrored and not, and how often a fetch gave it.
TEST(ImageSet, CropsAndFlips) {
  const auto images = some_images(400, 6, 9);
  const auto set = make_image_set(images, 0, 400, {.augment = true});
  const std::vector<uint64_t> ids = ids_below(400);
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

// Every window of three pixels inside the image; the middle in tests.
TEST(ImageSet, CropsInsideTheImage) {
  const auto images = some_images(300, 6, 5);
  const auto set = make_image_set(images, 0, 300, {.augment = true, .crop = 3});
  const std::vector<uint64_t> ids = ids_below(300);
  const torch::Tensor whole = normalised(*images);
  EXPECT_TRUE(torch::equal(set->fetch(ids, {.training = false}).inputs,
                           whole.slice(2, 1, 4).slice(3, 1, 4)));
  const torch::Tensor fetched = set->fetch(ids, {.training = true, .seed = 3, .epoch = 5}).inputs;
  int down[4] = {}, right[3] = {};
  for (int64_t i = 0; i < 300; ++i)
    for (int64_t y = 0; y < 4; ++y)
      for (int64_t x = 0; x < 3; ++x) {
        const torch::Tensor window = whole[i].slice(1, y, y + 3).slice(2, x, x + 3);
        if (!torch::equal(fetched[i], window) && !torch::equal(fetched[i], window.flip(2)))
          continue;
        ++down[y];
        ++right[x];
      }
  EXPECT_EQ(down[0] + down[1] + down[2] + down[3], 300);
  for (const int count : down) EXPECT_NEAR(count, 75, 35);
  for (const int count : right) EXPECT_NEAR(count, 100, 40);
  EXPECT_THROW(make_image_set(images, 0, 3, {.crop = 6}), Error);
}

TEST(ImageSet, AugmentsBySeedEpochAndSampleAlone) {
  const auto set = make_image_set(some_images(50, 8, 8), 0, 50, {.augment = true});
  const std::vector<uint64_t> ids = ids_below(50);
  const std::vector<uint64_t> reversed(ids.rbegin(), ids.rend());
  const FetchContext context{.training = true, .seed = 1, .epoch = 2};
  const torch::Tensor first = set->fetch(ids, context).inputs;
  EXPECT_TRUE(torch::equal(first, set->fetch(reversed, context).inputs.flip(0)));
  const FetchContext seed{.training = true, .seed = 2, .epoch = 2};
  const FetchContext epoch{.training = true, .seed = 1, .epoch = 3};
  EXPECT_FALSE(torch::equal(first, set->fetch(ids, seed).inputs));
  EXPECT_FALSE(torch::equal(first, set->fetch(ids, epoch).inputs));
}

class IdxFolder : public FolderTest {
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

class DataSets : public FolderTest {};

TEST_F(DataSets, Cifar10) {
  for (char batch = 1; batch <= 5; ++batch)
    write("cifar10/data_batch_" + std::to_string(batch) + ".bin",
          cifar_record(batch, 255, 0, static_cast<uint8_t>(batch)) + cifar_record(9, 1, 2, 3));
  write("cifar10/test_first1000.bin", cifar_record(0, 51, 102, 153));
  const DataRequest request{.name = "cifar10", .folder = folder_.string(), .hold_out = 2};
  DataSplits splits = make_data_set(request);
  EXPECT_THAT(splits.shape.input, ElementsAre(3, 32, 32));
  EXPECT_EQ(splits.train->size(), 8u);
  EXPECT_EQ(splits.test->size(), 1u);
  const Batch train = splits.train->fetch(ids_below(8), {});
  EXPECT_TRUE(torch::equal(train.targets, torch::tensor({1, 9, 2, 9, 3, 9, 4, 9})));
  EXPECT_TRUE(
      torch::equal(splits.held_out->fetch(ids_below(2), {}).targets, torch::tensor({5, 9})));
  const torch::Tensor test = splits.test->fetch(ids_below(1), {}).inputs;
  const float expected[] = {(0.2f - 0.4914f) / 0.2470f, (0.4f - 0.4822f) / 0.2435f,
                            (0.6f - 0.4465f) / 0.2616f};
  for (int64_t c = 0; c < 3; ++c)
    EXPECT_TRUE(torch::allclose(test[0][c], torch::full({32, 32}, expected[c]))) << c;

  // The whole test file is preferred to a part of it.
  DataRequest augmented = request;
  write("cifar10/test_batch.bin", cifar_record(1, 0, 0, 0) + cifar_record(2, 0, 0, 0));
  augmented.augment = true;
  splits = {};  // so that the files are read again
  const DataSplits whole = make_data_set(augmented);
  EXPECT_EQ(whole.test->size(), 2u);
  EXPECT_FALSE(
      torch::equal(whole.train->fetch(ids_below(8), {.training = true}).inputs, train.inputs));
  EXPECT_TRUE(torch::equal(whole.train->fetch(ids_below(8), {}).inputs, train.inputs));
}

TEST_F(DataSets, Cifar10RefusesBrokenFiles) {
  for (int batch = 1; batch <= 5; ++batch)
    write("cifar10/data_batch_" + std::to_string(batch) + ".bin", cifar_record(0, 0, 0, 0));
  const DataRequest request{.name = "cifar10", .folder = folder_.string()};
  expect_error([&] { make_data_set(request); }, ErrorCode::kIo, "no test_batch.bin");
  expect_error([&] { make_data_set(request); }, ErrorCode::kIo, folder_.string());
  write("cifar10/test_batch.bin", cifar_record(0, 0, 0, 0) + "x");
  expect_error([&] { make_data_set(request); }, ErrorCode::kCorrupt, "3074 bytes");
  write("cifar10/test_batch.bin", cifar_record(0, 0, 0, 0) + cifar_record(10, 0, 0, 0));
  expect_error([&] { make_data_set(request); }, ErrorCode::kCorrupt, "label 10 in record 1");
}

TEST_F(DataSets, Text) {
  // 39 characters: 35 to train on, of which 34 have a successor, and 4.
  write("shakespeare/input.txt", "the quick brown fox jumps over the lazy");
  const DataRequest request{
      .name = "shakespeare", .folder = folder_.string(), .hold_out = 2, .sequence = 3};
  DataSplits splits = make_data_set(request);
  EXPECT_THAT(splits.shape.input, ElementsAre(3));
  EXPECT_EQ(splits.shape.classes, 25);  // all letters but d and g, and the blank
  EXPECT_EQ(splits.train->size(), 9u);
  EXPECT_EQ(splits.held_out->size(), 2u);
  EXPECT_EQ(splits.test->size(), 1u);
  const std::string alphabet = " abcefhijklmnopqrstuvwxyz";
  const auto text = [&](const torch::Tensor& codes) {
    std::string characters;
    for (int64_t i = 0; i < codes.numel(); ++i)
      characters += alphabet.at(static_cast<size_t>(codes.flatten()[i].item<int64_t>()));
    return characters;
  };
  const Batch train = splits.train->fetch(std::vector<uint64_t>{0, 2}, {});
  EXPECT_EQ(train.inputs.dtype(), torch::kLong);
  EXPECT_EQ(text(train.inputs), "theick");
  EXPECT_EQ(text(train.targets), "he ck ");
  const Batch held = splits.held_out->fetch(ids_below(2), {});
  EXPECT_EQ(text(held.inputs), "ver th");
  const Batch test = splits.test->fetch(ids_below(1), {});
  EXPECT_EQ(text(test.inputs), "laz");
  EXPECT_EQ(text(test.targets), "azy");

  splits = {};
  write("shakespeare/input.txt", "aaaa");
  expect_error([&] { make_data_set({.name = "shakespeare", .folder = folder_.string()}); },
               ErrorCode::kCorrupt, "two distinct");
}

TEST_F(DataSets, Words) {
  write("wikitext-2/valid.txt", " a b a <unk>\n\n b a  c \n");
  write("wikitext-2/test.txt", "c d a\nb");
  const DataRequest request{.name = "wikitext-2", .folder = folder_.string(), .sequence = 3};
  DataSplits splits = make_data_set(request);
  // By frequency, then by their bytes: <eos> and a three times, b twice, <unk> and c once.
  EXPECT_EQ(splits.shape.classes, 5);
  const auto row = [](std::initializer_list<int64_t> codes) {
    return torch::tensor(std::vector<int64_t>(codes)).unsqueeze(0);
  };
  ASSERT_EQ(splits.train->size(), 3u);  // of ten words
  const Batch first = splits.train->fetch(ids_below(1), {});
  EXPECT_TRUE(first.inputs.equal(row({1, 2, 1})));
  EXPECT_TRUE(first.targets.equal(row({2, 1, 3})));
  const Batch second = splits.train->fetch(std::vector<uint64_t>{1}, {});
  EXPECT_TRUE(second.inputs.equal(row({3, 0, 0})));
  ASSERT_EQ(splits.test->size(), 1u);
  const Batch test = splits.test->fetch(ids_below(1), {});
  EXPECT_TRUE(test.inputs.equal(row({4, 3, 1})));  // d is not known
  EXPECT_TRUE(test.targets.equal(row({3, 1, 0})));

  splits = {};
  write("wikitext-2/valid.txt", "a b\n");
  expect_error([&] { make_data_set(request); }, ErrorCode::kCorrupt, "none is <unk>");
}

TEST_F(DataSets, SpokenDigits) {
  for (int index : {0, 4, 5, 49}) {
    for (const char* speaker : {"ann", "bob"}) {
      for (int digit : {3, 8})
        write("fsdd/recordings/" + std::to_string(digit) + "_" + speaker + "_" +
                  std::to_string(index) + ".wav",
              wav(tone(300 * digit + index, 4000)));
    }
  }
  const DataRequest request{.name = "spoken-digits", .folder = folder_.string(), .hold_out = 4};
  DataSplits splits = make_data_set(request);
  EXPECT_THAT(splits.shape.input, ElementsAre(64, 40));
  EXPECT_EQ(splits.train->size(), 4u);
  EXPECT_EQ(splits.test->size(), 8u);
  // Index 49 of both speakers and digits.
  EXPECT_TRUE(
      torch::equal(splits.held_out->fetch(ids_below(4), {}).targets, torch::tensor({3, 3, 8, 8})));
  const std::vector<int16_t> sound = tone(300 * 8 + 5, 4000);
  const torch::Tensor samples =
      torch::tensor(std::vector<float>(sound.begin(), sound.end())) / 32768;
  EXPECT_TRUE(torch::equal(splits.train->fetch(std::vector<uint64_t>{2}, {}).inputs[0],
                           fit_utterance(log_mel(samples, {}), 64)));

  write("fsdd/recordings/3_ann_6.wav", wav({1, 2, 3}, 16000));
  splits = {};
  expect_error([&] { make_data_set(request); }, ErrorCode::kCorrupt, "3_ann_6.wav");
}

TEST_F(DataSets, AreListedAndChecked) {
  std::vector<std::string> names;
  for (const DataSetInfo& info : list_data_sets()) {
    names.push_back(info.name);
    EXPECT_FALSE(info.about.empty() || info.origin.empty() || info.terms.empty());
  }
  EXPECT_THAT(names, ElementsAre("fashion-mnist", "mnist", "cifar10", "shakespeare", "wikitext-2",
                                 "spoken-digits", "adult"));
  EXPECT_THAT(list_data_sets()[2].files,
              ElementsAre("cifar10/data_batch_1.bin", "cifar10/data_batch_2.bin",
                          "cifar10/data_batch_3.bin", "cifar10/data_batch_4.bin",
                          "cifar10/data_batch_5.bin", "cifar10/test_batch.bin"));

  const DataSetState absent = check_data_set("mnist", folder_.string());
  EXPECT_FALSE(absent.ready);
  EXPECT_EQ(absent.folder, "");
  EXPECT_THAT(
      absent.problems,
      ElementsAre("train-images-idx3-ubyte.gz: missing", "train-labels-idx1-ubyte.gz: missing",
                  "t10k-images-idx3-ubyte.gz: missing", "t10k-labels-idx1-ubyte.gz: missing"));
  write("mnist/train-labels-idx1-ubyte", "something else");
  write("mnist/t10k-labels-idx1-ubyte.gz", "\x1f\x8b and no more");
  const DataSetState wrong = check_data_set("mnist", folder_.string());
  EXPECT_EQ(wrong.folder, (folder_ / "mnist").string());
  EXPECT_THAT(wrong.problems,
              ElementsAre("train-images-idx3-ubyte.gz: missing",
                          "train-labels-idx1-ubyte: its content is not what was published",
                          "t10k-images-idx3-ubyte.gz: missing",
                          testing::HasSubstr("t10k-labels-idx1-ubyte.gz: broken gzip data")));
  expect_error([] { check_data_set("imagenet", ""); }, ErrorCode::kUnknownName, "spoken-digits");
}

// Debian's package, and the text in the source tree.
TEST(DataPlaces, AreWhereSystemsInstallData) {
  for (const char* name : {"fashion-mnist", "shakespeare"}) {
    const DataSetState state = check_data_set(name, "");
    EXPECT_TRUE(state.ready) << name;
    EXPECT_THAT(state.problems, testing::IsEmpty());
  }
  const DataSplits fashion = make_data_set({.name = "fashion-mnist"});
  EXPECT_EQ(fashion.train->size(), 60000u);
  EXPECT_EQ(fashion.test->size(), 10000u);
  const torch::Tensor pixels = fashion.train->fetch(ids_below(60000), {}).inputs;
  EXPECT_NEAR(pixels.mean().item<float>(), 0, 1e-3);
  EXPECT_NEAR(pixels.square().mean().item<float>(), 1, 1e-3);

  const DataSplits text = make_data_set({.name = "shakespeare"});
  EXPECT_EQ(text.shape.classes, 65);
  EXPECT_EQ(text.train->size(), (1'115'394 * 9 / 10 - 1) / 64u);
  EXPECT_EQ(text.test->size(), (1'115'394 - 1'115'394 * 9 / 10 - 1) / 64u);
}

TEST_F(DataSets, RefuseUnknownNamesAndSettings) {
  expect_error([] { make_data_set({.name = "imagenet"}); }, ErrorCode::kUnknownName,
               "known: fashion-mnist");
  expect_error([] { make_data_set({.name = "shakespeare", .crop = 5}); }, ErrorCode::kBadOption,
               "crop");
  expect_error([] { make_data_set({.name = "fashion-mnist", .augment = true}); },
               ErrorCode::kBadOption, "augment");
  expect_error([] { make_data_set({.name = "mnist", .sequence = 5}); }, ErrorCode::kBadOption,
               "sequence");
  expect_error([] { make_data_set({.name = "shakespeare", .sequence = -5}); },
               ErrorCode::kBadOption, "sequence");
}

}  // namespace
}  // namespace thinwire
