// A program under mpirun --enable-recovery: asynchronous workers of which one is lost, as the first
// argument says, and the others train on. Each that ends well says so; mpirun's exit code does not
// tell.
// SPDX-License-Identifier: Apache-2.0
#include <chrono>
#include <csignal>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "thinwire/synchroniser.h"

namespace thinwire {
namespace {

using namespace std::chrono_literals;

constexpr size_t kCount = size_t{5} << 20;  // 20 MiB: sent whole, after a handshake
constexpr size_t kRounds = 12;              // of a survivor, at least

struct Scenario {
  std::string_view name;
  int culprit;  // who is lost
  int after;    // that many rounds
  bool in_round;
  bool throws;
};
constexpr Scenario kScenarios[] = {
    {.name = "killed", .culprit = 2, .after = 3, .in_round = false, .throws = false},
    {.name = "killed-in-a-round", .culprit = 2, .after = 3, .in_round = true, .throws = false},
    {.name = "throws", .culprit = 1, .after = 3, .in_round = false, .throws = true},
    {.name = "rank-0-killed", .culprit = 0, .after = 3, .in_round = false, .throws = false},
};

void die(const Scenario& scenario) {
  if (scenario.throws) throw std::runtime_error("the disk is full");
  raise(SIGKILL);
}

// Whoever leads, in turn: every worker is sent to by every other.
double loss_of(int rank, uint64_t rounds) {
  return static_cast<double>((static_cast<uint64_t>(rank) + rounds) % 4);
}

void train(Group& group, Synchroniser& sync, const Scenario& scenario, uint64_t& rounds) {
  const bool culprit = group.rank() == scenario.culprit;
  std::vector<float> x(kCount, 1);
  for (bool without = false; rounds < kRounds || !without;) {
    std::this_thread::sleep_for(2ms);
    if (culprit && !scenario.in_round && rounds == static_cast<uint64_t>(scenario.after))
      die(scenario);
    const auto report = sync.after_step(x, loss_of(group.rank(), rounds));
    if (!report) continue;
    rounds = report->round + 1;
    without = !report->skipped && static_cast<int>(report->ranks.size()) < group.size();
  }
  std::string left;
  for (const int rank : sync.leave()) left += (left.empty() ? "" : ",") + std::to_string(rank);
  std::vector<float> centre(kCount);
  sync.centre(x, centre);
  for (const LostWorker& worker : sync.lost())
    std::printf("lost rank %d: %s\n", worker.rank, worker.why.c_str());
  std::printf("rank %d ended with ranks %s after %d rounds or more\n", group.rank(), left.c_str(),
              static_cast<int>(kRounds));
}

int run(const Scenario& scenario) {
  const std::unique_ptr<Group> group = make_mpi_group().value();
  group->set_deadline(20s);
  Store store;
  uint64_t rounds = 0;
  const std::vector<float> start(kCount, 1);
  SynchroniserOptions options{
      .method = "leader:groups=2,tau=5,tau_global=5,asynchronous=true,patience=5"};
  options.judge = [&](std::span<const float>) {
    if (group->rank() == scenario.culprit && scenario.in_round &&
        rounds == static_cast<uint64_t>(scenario.after))
      die(scenario);
    return loss_of(group->rank(), rounds);
  };
  const auto sync =
      make_synchroniser(*group, store, {{"w", {kCount}, TensorKind::kLinear}}, start, options);
  try {
    train(*group, *sync, scenario, rounds);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "rank %d: %s\n", group->rank(), error.what());
    if (!sync->fail(error.what())) group->abort(error.what());
    return 1;
  }
  return 0;
}

}  // namespace
}  // namespace thinwire

int main(int argc, char** argv) {
  for (const auto& scenario : thinwire::kScenarios)
    if (argc == 2 && scenario.name == argv[1]) return thinwire::run(scenario);
  return 2;
}
