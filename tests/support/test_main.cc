// main() of test programs. With a file's stem as argument (`exchange_tests dense_test`) only the
// tests of that file run; without one, all of the program's.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <iostream>
#include <set>
#include <string>

namespace {

struct Selection {
  std::string filter;
  std::set<std::string> files;  // of all tests
};

// GoogleTest knows the file of each test, instances of parametrized ones included.
Selection select_file(const std::string& stem) {
  Selection found;
  const testing::UnitTest& all = *testing::UnitTest::GetInstance();
  for (int s = 0; s < all.total_test_suite_count(); ++s) {
    const testing::TestSuite& suite = *all.GetTestSuite(s);
    for (int t = 0; t < suite.total_test_count(); ++t) {
      const testing::TestInfo& test = *suite.GetTestInfo(t);
      const std::string file = std::filesystem::path(test.file()).stem().string();
      found.files.insert(file);
      if (file == stem)
        found.filter +=
            std::string(found.filter.empty() ? "" : ":") + suite.name() + "." + test.name();
    }
  }
  return found;
}

}  // namespace

int main(int argc, char** argv) {
  testing::InitGoogleMock(&argc, argv);
  if (argc == 1) return RUN_ALL_TESTS();
  const std::string stem = argv[1];
  const Selection selection = select_file(stem);
  if (argc > 2 || selection.filter.empty()) {
    std::cerr << argv[0] << ": no test file '" << stem << "'; this program has";
    for (const std::string& file : selection.files) std::cerr << ' ' << file;
    std::cerr << '\n';
    return 2;
  }
  GTEST_FLAG_SET(filter, selection.filter);
  return RUN_ALL_TESTS();
}
