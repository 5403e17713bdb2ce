// Tests that memory of one step serves the next.
// SPDX-License-Identifier: Apache-2.0
#include "cli/kept_memory.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cstdlib>
#include <memory>
#include <vector>

namespace thinwire::cli {
namespace {

// Page faults while three arrays of 20 MB are written and freed.
int64_t faults_of_a_step() {
  const auto faults = [] {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_minflt;
  };
  const int64_t before = faults();
  {
    std::vector<std::unique_ptr<char[]>> arrays;
    for (int i = 0; i < 3; ++i) arrays.push_back(std::make_unique<char[]>(20 << 20));
  }
  return faults() - before;
}

TEST(KeepFreedMemory, ServesTheNextStep) {
#if !defined(__GLIBC__) || defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "another malloc";
#endif
  if (std::getenv("GLIBC_TUNABLES") != nullptr) GTEST_SKIP() << "limits of the user";
  keep_freed_memory();
  faults_of_a_step();
  EXPECT_LT(faults_of_a_step(), 1000);
}

}  // namespace
}  // namespace thinwire::cli
