// Ranks that are processes: the main function of a suite that mpirun starts. Every process runs
// every test; the job fails when one of them does.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <memory>

#include "multirank/ranks.h"

namespace thinwire {
namespace {

std::unique_ptr<Group> world;  // mpirun's

// All ranks but the first report their failures only.
class FailurePrinter final : public testing::EmptyTestEventListener {
  void OnTestPartResult(const testing::TestPartResult& result) override {
    if (result.failed())
      std::fprintf(stderr, "rank %d: %s:%d: %s\n", world->rank(), result.file_name(),
                   result.line_number(), result.message());
  }
};

}  // namespace

std::vector<int> rank_counts() { return {world->size()}; }

void on_ranks(int /*count*/, const std::function<void(Group&)>& body) {
  const auto group = world->split(0);
  group->set_deadline(std::chrono::seconds(20));
  body(*group);
}

}  // namespace thinwire

int main(int argc, char** argv) {
  auto group = thinwire::make_mpi_group();
  if (!group) {
    std::fprintf(stderr, "%s\n", group.status().message().c_str());
    return 1;
  }
  thinwire::world = std::move(group).value();
  testing::InitGoogleTest(&argc, argv);
  if (thinwire::world->rank() != 0) {
    auto& listeners = testing::UnitTest::GetInstance()->listeners();
    delete listeners.Release(listeners.default_result_printer());
    listeners.Append(new thinwire::FailurePrinter);
  }
  const int failed = RUN_ALL_TESTS();
  thinwire::world.reset();
  return failed;
}
