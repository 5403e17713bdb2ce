// Replaces the MPI group in builds without MPI.
// SPDX-License-Identifier: Apache-2.0
#include "thinwire/group.h"

namespace thinwire {

Result<std::unique_ptr<Group>> make_mpi_group() {
  return Status::fail(ErrorCode::kUnsupported,
                      "mpi: not built in; configure with -DTHINWIRE_WITH_MPI=ON");
}

}  // namespace thinwire
