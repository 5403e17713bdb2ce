// Ranks of a torch.distributed process group: suites of tests/multirank as a module, which every
// rank's interpreter runs on the process group that it is given; and a rank that leaves before
// another's send has ended.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <torch/csrc/utils/pybind.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <utility>
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

// What was sent has arrived for a while when wait says so, as where the sending thread loses its
// core.
class LateWork final : public c10d::Work {
 public:
  explicit LateWork(c10::intrusive_ptr<c10d::Work> work) : work_(std::move(work)) {}
  bool wait(std::chrono::milliseconds timeout) override {
    const bool ended = work_->wait(timeout);
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    return ended;
  }

 private:
  c10::intrusive_ptr<c10d::Work> work_;
};

class LateSends final : public c10d::Backend {
 public:
  explicit LateSends(c10::intrusive_ptr<c10d::Backend> backend)
      : Backend(backend->getRank(), backend->getSize()), backend_(std::move(backend)) {}
  const std::string getBackendName() const override { return "late"; }
  c10::intrusive_ptr<c10d::Work> send(std::vector<at::Tensor>& tensors, int to, int tag) override {
    return c10::make_intrusive<LateWork>(backend_->send(tensors, to, tag));
  }
  c10::intrusive_ptr<c10d::Work> recv(std::vector<at::Tensor>& tensors, int from,
                                      int tag) override {
    return backend_->recv(tensors, from, tag);
  }

 private:
  c10::intrusive_ptr<c10d::Backend> backend_;
};

// Rank 0 sends, late; rank 1 receives and leaves at once, by an exception if asked to. Throws when
// either end is told of a loss.
void leave_early(const c10::intrusive_ptr<c10d::ProcessGroup>& processes, bool by_exception) {
  const pybind11::gil_scoped_release released;
  auto used = processes;
  if (processes->getRank() == 0) {
    used = c10::make_intrusive<c10d::ProcessGroup>(0, processes->getSize());
    used->setBackend(c10::DeviceType::CPU, c10d::ProcessGroup::BackendType::CUSTOM,
                     c10::make_intrusive<LateSends>(processes->getBackend(c10::DeviceType::CPU)));
  }
  struct Leaving {};
  try {
    const auto group = make_c10d_group(used);
    std::array<std::byte, 8> word = {};
    group->wait(group->rank() == 0 ? group->send(word, 1, 0) : group->receive(word, 0, 0));
    if (by_exception && group->rank() == 1) throw Leaving();
  } catch (const Leaving&) {
  }
  close_c10d_groups();
}

// Rank 1 sends and leaves; rank 0 looks only then. Throws unless all came.
void read_late(const c10::intrusive_ptr<c10d::ProcessGroup>& processes) {
  const pybind11::gil_scoped_release released;
  {
    const auto group = make_c10d_group(processes);
    std::vector<std::byte> bytes(size_t{5} << 20, std::byte{7});
    if (group->rank() == 1) {
      group->wait(group->send(bytes, 0, 0));
    } else {
      std::this_thread::sleep_for(std::chrono::seconds(1));
      std::ranges::fill(bytes, std::byte{0});
      group->wait(group->receive(bytes, 1, 0));
      if (std::ranges::count(bytes, std::byte{7}) != std::ssize(bytes))
        throw std::runtime_error("other bytes");
    }
  }
  close_c10d_groups();
}

}  // namespace

std::vector<int> rank_counts() { return {world->size()}; }

void on_ranks(int /*count*/, const std::function<void(Group&)>& body) {
  const auto group = world->split(0);
  group->set_deadline(std::chrono::seconds(20));
  body(*group);
}

}  // namespace thinwire

PYBIND11_MODULE(_c10d_ranks, module) {
  module.def("run", &thinwire::run);
  module.def("leave_early", &thinwire::leave_early);
  module.def("read_late", &thinwire::read_late);
}
