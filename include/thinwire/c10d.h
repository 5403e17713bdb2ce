// Groups whose ranks are those of a torch.distributed process group.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "thinwire/group.h"

namespace thinwire {

// Makes a group of the process group's ranks. All ranks call it in the same order, and each call
// makes a channel of its own. It uses only messages between two ranks, under a tag of thinwire's,
// so the process group's own collectives can run beside it. Throws Error(kUnsupported) for a
// backend that cannot send tensors in CPU memory (NCCL alone).
std::unique_ptr<Group> make_c10d_group(const c10::intrusive_ptr<c10d::ProcessGroup>& group);

// Releases one process group, for a program that goes on with another: its threads end, and no
// group made of it may be used any more. The other ranks that are left call it, too. Waits 2 s for
// them at most.
void close_c10d_group(const c10::intrusive_ptr<c10d::ProcessGroup>& group) noexcept;

// Releases every process group. Call it before the interpreter ends.
void close_c10d_groups() noexcept;

}  // namespace thinwire
