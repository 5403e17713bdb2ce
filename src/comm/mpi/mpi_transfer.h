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

// What a group and its transfers share; one thread at a time.
struct MpiMembers {
  MpiWorld* world;
  int rank = 0;                    // this process's place
  std::vector<int> names;          // rank in the world of each member
  std::vector<uint32_t> contexts;  // each member's number for this group
  std::vector<uint32_t> bodies;    // sent so far to each member
  std::string cause;               // of the first failed wait, when it was the loss of another rank

  uint32_t context(int r) const { return contexts[static_cast<size_t>(r)]; }
  int name(int r) const { return names[static_cast<size_t>(r)]; }
};

std::unique_ptr<Transfer> mpi_send(std::shared_ptr<MpiMembers> members,
                                   std::span<const std::byte> buffer, int to, int tag);
std::unique_ptr<Transfer> mpi_receive(std::shared_ptr<MpiMembers> members,
                                      std::span<std::byte> buffer, int from, int tag);

// values += those of all other members of `comm`. REQUIRES: values.size() fits an int.
std::unique_ptr<Transfer> mpi_sum(std::shared_ptr<MpiMembers> members, MPI_Comm comm,
                                  std::span<float> values);

}  // namespace thinwire
