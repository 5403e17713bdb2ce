// Replaces the MPI group in builds without MPI.
// SPDX-License-Identifier: Apache-2.0
#include "thinwire/group.h"
#include "thinwire/members.h"

namespace thinwire {
namespace {

Status not_built() {
  return Status::fail(ErrorCode::kUnsupported,
                      "mpi: not built in; configure with -DTHINWIRE_WITH_MPI=ON");
}

}  // namespace

Result<std::unique_ptr<Group>> make_mpi_group() { return not_built(); }

Result<std::unique_ptr<Members>> make_mpi_members() { return not_built(); }

}  // namespace thinwire
