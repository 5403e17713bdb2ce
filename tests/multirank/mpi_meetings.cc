// A program under mpirun: processes meet, and one is late, leaves, is cut off from the others, or
// aborts a group, as the first argument says. Each says what it comes to.
// SPDX-License-Identifier: Apache-2.0
#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "comm/mpi/mpi_transfer.h"
#include "comm/mpi/mpi_world.h"
#include "thinwire/members.h"
#include "thinwire/survived.h"

namespace thinwire {
namespace {

using namespace std::chrono_literals;

constexpr auto kPatience = 1500ms;
constexpr auto kSilence = 3s;  // longer than any wait of the others

// The groups stay: those that end would be lost to the others.
bool begins(Members& members, std::chrono::milliseconds patience, Meeting& meeting) {
  try {
    meeting = members.meet(patience, false);
    std::printf("rank %d began as %d\n", members.number(), members.rank());
    return true;
  } catch (const AgreedError& error) {
    std::printf("rank %d did not begin: %s\n", members.number(), error.what());
    return false;
  }
}

// A group is aborted, and all go on in the next one.
int abort_and_go_on() {
  const std::unique_ptr<Members> members = make_mpi_members().value();
  Meeting first;
  if (!begins(*members, 60s, first)) return 1;
  if (members->number() == 0) first.group->abort("it is time for another group");
  const Meeting second = members->meet(60s, false);
  second.group->barrier();
  std::printf("rank %d goes on\n", members->number());
  return 0;
}

// Every other group is left before the others have come into it: their letters about the next one
// may come early.
int meet_many_times() {
  const std::unique_ptr<Members> members = make_mpi_members().value();
  Meeting meeting;
  if (!begins(*members, 60s, meeting)) return 1;
  for (int i = 0; i < 400; ++i) {
    meeting = members->meet(60s, false);
    meeting.group->set_deadline(10s);
    if (i % 2 != 0) meeting.group->barrier();
  }
  std::printf("rank %d goes on\n", members->number());
  return 0;
}

// Rank 0 aborts a group in which nobody knows rank 2's number of the family. Other groups stay.
int abort_without_a_number() {
  MpiWorld& world = *MpiWorld::get().value();
  const std::unique_ptr<Group> other = make_mpi_group().value();
  auto family = std::make_shared<MpiFamily>();
  family->own = world.new_context();
  family->world_ranks = {0, 1, 2};
  family->contexts = {family->own, family->own, 0};
  MpiGroupState members{.world = &world,
                        .rank = world.rank(),
                        .world_ranks = family->world_ranks,
                        .contexts = std::vector<uint32_t>(3, world.new_context()),
                        .bodies = std::vector<uint32_t>(3),
                        .cause = {},
                        .family = family};
  const std::unique_ptr<Group> group = make_group_of(std::move(members));
  other->barrier();
  if (world.rank() == 0) group->abort("no letter came");
  std::this_thread::sleep_for(500ms);  // all have heard it
  world.listen();
  other->barrier();
  std::printf("rank %d goes on\n", world.rank());
  return 0;
}

int run(const std::string& scenario) {
  if (scenario == "all-again") return abort_and_go_on();
  if (scenario == "many-times") return meet_many_times();
  if (scenario == "without-a-number") return abort_without_a_number();
  std::unique_ptr<Members> members = make_mpi_members().value();
  const int me = members->number();
  Meeting first, second;
  if (scenario == "late" || scenario == "leaves") {
    if (me == 2 && scenario == "leaves") {
      members.reset();
      std::this_thread::sleep_for(kSilence);
      return 0;
    }
    if (me == 2) std::this_thread::sleep_for(kSilence);
    begins(*members, scenario == "late" ? kPatience : 60s, first);
    std::this_thread::sleep_for(kSilence);  // the late one hears it
    return 0;
  }
  if (!begins(*members, 60s, first)) return 0;
  if (scenario == "cut-off" ? me != 2 : me == 0) {
    std::this_thread::sleep_for(2 * kSilence);
    return 0;
  }
  try {
    second = members->meet(kPatience, false);
    std::printf("rank %d goes on as %d of %d\n", me, members->rank(), second.group->size());
    std::this_thread::sleep_for(kSilence);
  } catch (const SurvivedError& error) {
    std::printf("rank %d ends: %s\n", me, error.what());
  } catch (const Error& error) {
    std::printf("rank %d tries again: %s\n", me, error.what());
  }
  return 0;
}

}  // namespace
}  // namespace thinwire

int main(int argc, char** argv) { return argc == 2 ? thinwire::run(argv[1]) : 2; }
