// Reads OMPI_COMM_WORLD_SIZE and OMPI_COMM_WORLD_RANK.
// SPDX-License-Identifier: Apache-2.0
#include "cli/mpirun.h"

#include <cstdlib>

namespace thinwire::cli {

std::optional<MpirunWorld> mpirun_world() {
  const char* size = std::getenv("OMPI_COMM_WORLD_SIZE");
  const char* rank = std::getenv("OMPI_COMM_WORLD_RANK");
  if (size == nullptr || rank == nullptr) return std::nullopt;
  return MpirunWorld{.rank = std::atoi(rank), .size = std::atoi(size)};
}

}  // namespace thinwire::cli
