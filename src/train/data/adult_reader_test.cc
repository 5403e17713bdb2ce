// Tests of Adult: values, codes and labels of a few lines, and what is said of bad ones.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <torch/torch.h>

#include <cmath>

#include "train/data/data_sets.h"
#include "train/data/data_test_files.h"
#include "train/data/table_set.h"

namespace thinwire {
namespace {

using testing::ElementsAre;

constexpr const char* kTrain =
    "39, State-gov, 100, Bachelors, 13, Never-married, Adm-clerical, Husband, White, Male, 0, 0, "
    "40, Cuba, <=50K\n"
    "\n"
    "41, Private, 300, HS-grad, 9, Divorced, Sales, Wife, Black, Female, 10, 0, 20, ?, >50K\r\n"
    "43, Private, 200, HS-grad, 11, Divorced, ?, Wife, White, Female, 5, 0, 30, Cuba, <=50K";
constexpr const char* kTest =
    "45, State-gov, 200, HS-grad, 11, Divorced, Sales, Wife, Black, Male, 5, 7, 30, ?, >50K.\n";

class AdultFiles : public FolderTest {
 protected:
  TablePair read(const std::string& train, const std::string& test) {
    return read_adult(write("train", train), write("test", test));
  }

  void expect_bad(const std::string& test, const std::string& words) {
    expect_error([&] { read(kTrain, test); }, ErrorCode::kCorrupt, words);
  }

  // The line of kTest with another value in a column.
  static std::string with(const std::string& before, const std::string& after) {
    std::string line = kTest;
    return line.replace(line.find(before), before.size(), after);
  }
};

TEST_F(AdultFiles, NumbersAreScaledAndCategoriesNumbered) {
  const TablePair pair = read(kTrain, kTest);
  EXPECT_THAT(pair.categories, ElementsAre(2, 2, 2, 3, 2, 2, 2, 2));
  const auto d = static_cast<float>(1 / std::sqrt(2.0 / 3));  // of three values at equal distances
  // Numbers first: age, fnlwgt, education-num, capital-gain, capital-loss (which does not vary),
  // hours-per-week.
  const torch::Tensor train = torch::tensor({{-d * 1, -d, d * 1, -d, 0.f, d,  // line 1
                                              1.f, 0.f, 1.f, 1.f, 0.f, 1.f, 1.f, 1.f},
                                             {0.f, d, -d, d, 0.f, -d,  // line 3
                                              0.f, 1.f, 0.f, 2.f, 1.f, 0.f, 0.f, 0.f},
                                             {d, 0.f, 0.f, 0.f, 0.f, 0.f,  // line 4
                                              0.f, 1.f, 0.f, 0.f, 1.f, 1.f, 0.f, 1.f}});
  EXPECT_TRUE(torch::allclose(pair.train.features, train, 0, 1e-6)) << pair.train.features;
  EXPECT_TRUE(pair.train.labels.equal(torch::tensor({0, 1, 0})));
  // By the training file's mean and deviation.
  const torch::Tensor test =
      torch::tensor({{2 * d, 0.f, 0.f, 0.f, 7.f, 0.f, 1.f, 1.f, 0.f, 2.f, 1.f, 0.f, 1.f, 0.f}});
  EXPECT_TRUE(torch::allclose(pair.test.features, test, 0, 1e-6)) << pair.test.features;
  EXPECT_TRUE(pair.test.labels.equal(torch::tensor({1})));
}

TEST_F(AdultFiles, BadLinesAreNamedWithFileLineAndColumn) {
  const std::string path = (folder_ / "test").string();
  expect_bad(with("11,", "many,"), path + ":1: column 'education-num': 'many' is no number");
  expect_bad(with("45,", "4 5,"), path + ":1: column 'age': '4 5' is no number");
  expect_bad(with("45,", "inf,"), path + ":1: column 'age': 'inf' is no number");
  expect_bad(with(" Sales,", " ,"), path + ":1: column 'occupation': '' is empty");
  expect_bad(with("Wife", "Aunt"),
             path + ":1: column 'relationship': 'Aunt' is not in the training file");
  expect_bad(with(">50K.", ">60K"), path + ":1: column 'income': '>60K' is neither <=50K nor >50K");
  expect_bad(with(" Male,", ""), path + ":1: 14 columns and not 15");
  expect_bad("\n" + std::string(kTest) + "\n" + with("45", "x"),
             path + ":4: column 'age': 'x' is no number");
  expect_bad("\n \n", path + ": holds no lines");
}

TEST_F(AdultFiles, AreADataSet) {
  write("adult/adult-train.csv", kTrain);
  write("adult/adult-test.csv", kTest);
  const DataRequest request{.name = "adult", .folder = folder_.string(), .hold_out = 1};
  const DataSplits splits = make_data_set(request);
  EXPECT_THAT(splits.shape.input, ElementsAre(14));
  EXPECT_EQ(splits.shape.classes, 2);
  EXPECT_THAT(splits.shape.categories, ElementsAre(2, 2, 2, 3, 2, 2, 2, 2));
  EXPECT_EQ(splits.train->size(), 2u);
  EXPECT_EQ(splits.test->size(), 1u);
  const std::vector<uint64_t> second = {1}, first = {0};
  EXPECT_TRUE(splits.train->fetch(second, {}).targets.equal(torch::tensor({1})));
  EXPECT_TRUE(splits.held_out->fetch(first, {}).targets.equal(torch::tensor({0})));
  EXPECT_FLOAT_EQ(splits.held_out->fetch(first, {}).inputs[0][0].item<float>(),
                  std::sqrt(1.5f));  // age 43
  expect_error([] { make_data_set({.name = "adult", .crop = 5}); }, ErrorCode::kBadOption, "crop");
}

}  // namespace
}  // namespace thinwire
