// Ranks of a torch.distributed process group: suites of tests/multirank as a module, which every rank's
// interpreter runs on the process group that it is given.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <torch/csrc/utils/pybind.h>

#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "multirank/ranks.h"
#include "thinwire/c10d.h"

namespace thinwire {
namespace {

std::unique_ptr<Group> world;

class FailurePrinter final : public testing::EmptyTestEventListener {
  void OnTestPartResult(const testing::TestPartResult& result) override {
    if (result.failed())
      std::fprintf(stderr, "rank %d: %s:%d: %s\n", world->rank(), result.file_name(),
                   result.line_number(), result.message());
  }
};

// The number of tests that ran, and whether all passed.
std::pair<int, bool> run(const c10::intrusive_ptr<c10d::ProcessGroup>& processes,
                         std::vector<std::string> arguments) {
  const pybind11::gil_scoped_release released;
  world = make_c10d_group(processes);
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  int argc = static_cast<int>(argv.size());
  argv.push_back(nullptr);
  testing::InitGoogleTest(&argc, argv.data());
  auto& listeners = testing::UnitTest::GetInstance()->listeners();
  delete listeners.Release(listeners.default_result_printer());
  listeners.Append(new FailurePrinter);
  const bool passed = RUN_ALL_TESTS() == 0;
  world.reset();
  close_c10d_groups();
  return {testing::UnitTest::GetInstance()->test_to_run_count(), passed};
}

}  // namespace

std::vector<int> rank_counts() { return {world->size()}; }

void on_ranks(int /*count*/, const std::function<void(Group&)>& body) {
  const auto group = world->split(0);
  group->set_deadline(std::chrono::seconds(20));
  body(*group);
}

}  // namespace thinwire

PYBIND11_MODULE(_c10d_ranks, module) { module.def("run", &thinwire::run); }
