// Groups whose ranks are those of a torch.distributed process group.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "thinwire/group.h"

namespace thinwire {

// This process's rank of the process group, which all its ranks call alike; each call makes a channel of
// its own. Only messages between two ranks are used, under a tag of thinwire's: the process group's own
// collectives go on beside it. Throws Error(kUnsupported) for a backend without tensors of the
// processor's memory (NCCL alone).
std::unique_ptr<Group> make_c10d_group(const c10::intrusive_ptr<c10d::ProcessGroup>& group);

// Before the interpreter goes: lets go of every process group.
void close_c10d_groups() noexcept;

}  // namespace thinwire
