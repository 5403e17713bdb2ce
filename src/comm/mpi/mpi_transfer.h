// Transfers over MPI that a group has under way: sends, receives and sums.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mpi.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "comm/mpi/mpi_world.h"
#include "thinwire/group.h"

namespace thinwire {

// A group of processes that come and go, and all that is split from it: they are aborted together,
// and others are not.
struct MpiFamily {
  std::vector<int> world_ranks;    // ranks in the world
  std::vector<uint32_t> contexts;  // the number that each of them has for the family; 0: not known
  uint32_t own = 0;                // this process's
};

// What a group and its transfers share; one thread at a time.
struct MpiGroupState {
  MpiWorld* world;
  int rank = 0;                    // this process's place
  std::vector<int> world_ranks;    // rank in the world of each member
  std::vector<uint32_t> contexts;  // each member's number for this group; 0: not known
  std::vector<uint32_t> bodies;    // sent so far to each member
  std::string cause;               // of the first failed wait, when it was the loss of another rank
  // Null: an abort ends all groups of all processes, and so may a transfer that is given up. In a
  // family the buffers of transfers are copied, so that MPI may know them for longer than callers
  // do.
  std::shared_ptr<const MpiFamily> family = nullptr;

  std::string lost(int r) const {
    return world->lost(context(rank), family == nullptr ? 0 : family->own, world_rank(r));
  }
  uint32_t context(int r) const { return contexts[static_cast<size_t>(r)]; }
  int world_rank(int r) const { return world_ranks[static_cast<size_t>(r)]; }
};

std::unique_ptr<Group> make_group_of(MpiGroupState members);

std::unique_ptr<Transfer> mpi_send(std::shared_ptr<MpiGroupState> members,
                                   std::span<const std::byte> buffer, int to, int tag);
std::unique_ptr<Transfer> mpi_receive(std::shared_ptr<MpiGroupState> members,
                                      std::span<std::byte> buffer, int from, int tag);

// values += those of all other members of `comm`. REQUIRES: values.size() fits an int.
std::unique_ptr<Transfer> mpi_sum(std::shared_ptr<MpiGroupState> members, MPI_Comm comm,
                                  std::span<float> values);

}  // namespace thinwire
