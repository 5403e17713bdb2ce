// Whether Open MPI's mpirun started this process, told by its environment before MPI is.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

namespace thinwire::cli {

struct MpirunWorld {
  int rank = 0;
  int size = 1;
};

std::optional<MpirunWorld> mpirun_world();

}  // namespace thinwire::cli
