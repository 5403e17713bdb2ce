// torch-topk: top-k made of libtorch's own calls, to compare its cost with thinwire's.
// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace thinwire::lab {

// Adds the codec "torch-topk" to the registry; option density. Its payload is u32 positions[k],
// then f32 values[k], as systems send it that do not code positions.
void register_torch_topk();

}  // namespace thinwire::lab
