// Tests that every shipped recipe can be parsed and names its source.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>

#include "cli/find_recipe.h"
#include "cli/recipe_file.h"
#include "thinwire/trainer.h"

namespace thinwire::cli {
namespace {

using ::testing::IsSupersetOf;
using ::testing::StartsWith;

TEST(ShippedRecipes, AllParse) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(THINWIRE_SOURCE_RECIPES)) {
    const std::string path = entry.path();
    const auto recipe = make_recipe(recipe_name(path), read_recipe(path, recipe_keys()),
                                    recipe_keys(), find_faults);
    EXPECT_TRUE(recipe.is_ok()) << recipe.status().message();
    names.push_back(recipe_name(path));
    std::ifstream file(path);
    std::string line;
    std::getline(file, line);
    EXPECT_THAT(line, StartsWith("# ")) << path;
  }
  EXPECT_THAT(names, IsSupersetOf({"demo", "adacomp-mnist", "adacomp-cifar", "adacomp-shakespeare",
                                   "adacomp-speech", "sidco-resnet20", "sidco-lstm", "lsgd-cnn7",
                                   "lsgd-resnet20", "mp-resnet18", "mp-gpt"}));
}

TEST(ShippedRecipes, AreFoundByTheirBareNames) {
  EXPECT_THAT(find_recipe("demo").value(), ::testing::EndsWith("/demo.toml"));
  EXPECT_EQ(find_recipe("demo/").status().code(), ErrorCode::kIo);
}

}  // namespace
}  // namespace thinwire::cli
