// A program under mpirun in which one rank fails, as named by its argument; rank 1 unless said.
// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string_view>
#include <thread>

#include "thinwire/exchange.h"
#include "thinwire/group.h"

namespace thinwire {
namespace {

using std::chrono::seconds;

void talk_for_ever(Group& group) {
  for (;;) group.barrier();
}

void nap() { std::this_thread::sleep_for(seconds(60)); }

void play(Group& group, std::string_view scenario) {
  const bool culprit = group.rank() == 1;
  std::vector<std::byte> big(size_t{8} << 20);
  group.barrier();
  if (scenario == "throws") {
    if (culprit) throw std::runtime_error("the disk is full");
  } else if (scenario == "killed") {
    if (culprit) raise(SIGKILL);
  } else if (scenario == "terminates") {
    if (culprit) std::terminate();
  } else if (scenario == "exits") {
    if (culprit) std::exit(3);
  } else if (scenario == "exits-at-once") {
    if (culprit) _exit(0);
  } else if (scenario == "returns-early") {
    if (culprit) return;
  } else if (scenario == "sleeps") {
    if (culprit) nap();
  } else if (scenario == "killed-while-sending") {
    const auto send = culprit ? group.send(big, 0, 1) : nullptr;
    if (culprit) send->done();
    if (culprit) raise(SIGKILL);
    if (group.rank() == 0) group.wait(group.receive(big, 1, 1));
  } else if (scenario == "gives-up-a-send") {
    if (culprit) group.send(big, 0, 1).reset();
    if (culprit) throw std::runtime_error("no longer wanted");
    if (group.rank() == 0) group.wait(group.receive(big, 1, 1));
  } else if (scenario == "wrong-length") {
    if (culprit) group.wait(group.send(std::vector<std::byte>(7), 0, 1));
    if (group.rank() == 0) group.wait(group.receive(std::span(big).first(8), 1, 1));
  } else if (scenario ==
             "far-too-long") {  // Open MPI itself would write all of it into the 8 bytes
    std::vector<std::byte> eight(8);
    if (culprit) group.wait(group.send(big, 0, 1));
    if (group.rank() == 0) group.wait(group.receive(eight, 1, 1));
  } else if (scenario == "in-a-sub-group") {
    const auto part = group.split(group.rank() / 2);
    if (culprit) part->abort("found in a part");
  } else if (scenario == "library-sum") {
    std::vector<float> values(100000, 1.0f);
    group.library_all_reduce(values);
    if (culprit) nap();
    for (;;) group.library_all_reduce(values);
  } else if (scenario ==
             "in-an-exchange") {  // the culprit lives on, and the exchange must hear of it
    Store store;
    const auto exchange = make_exchange(group, store, {{"w", {1000}, TensorKind::kLinear}}, {});
    if (culprit) group.abort("the disk is full");
    if (culprit) nap();
    for (std::vector<float> values(1000);;) {
      exchange->start(0, {.data = values.data(), .count = values.size()});
      exchange->finish();
    }
  } else if (scenario == "on-another-thread") {
    const auto other = group.split(0);
    std::thread thread([&] {
      try {
        if (culprit) throw std::runtime_error("the second thread");
        talk_for_ever(*other);
      } catch (const std::exception& error) {
        other->abort(error.what());
      }
    });
    try {
      talk_for_ever(group);
    } catch (...) {
      thread.join();
      throw;
    }
  }
  talk_for_ever(group);
}

// The group ends by the exception, before anybody has told the others.
void play_unwound(std::string_view scenario) {
  const auto group = make_mpi_group().value();
  group->barrier();
  if (group->rank() == 1 && scenario == "unwinds") throw std::runtime_error("seen too late");
  talk_for_ever(*group);
}

int run(std::string_view scenario) {
  std::unique_ptr<Group> group = make_mpi_group().value();
  group->set_deadline(seconds(2));
  try {
    if (scenario == "unwinds") play_unwound(scenario);
    play(*group, scenario);
  } catch (const std::exception& error) {
    group->abort(error.what());
    std::fprintf(stderr, "thinwire: rank %d: %s\n", group->rank(), error.what());
    return 1;
  }
  return 0;
}

}  // namespace
}  // namespace thinwire

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  return thinwire::run(argv[1]);
}
