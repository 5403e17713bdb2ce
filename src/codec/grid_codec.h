// The codec behind uniform, acsgd, qsgd and terngrad: an even grid per block or tensor.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "codec/device_codec.h"
#include "kernel/grid_blocks.h"
#include "thinwire/codec.h"
#include "thinwire/options.h"

namespace thinwire {

// `blocks.block` 0 stands for whole tensors. Payload, per block: the grid and the codes, as
// kernel/grid_blocks.h writes them. With `info.agreed` = kScale, where ranks make rounds, all take
// the largest scale of each block; REQUIRES then a rule of one scale.
std::unique_ptr<Codec> make_grid_codec(const CodecInfo& info, const kernel::GridBlocks& blocks,
                                       bool random);

// The same for values in a device's memory. REQUIRES: kMinMax or kMax, nothing agreed.
std::unique_ptr<Codec> make_grid_device_codec(const CodecInfo& info,
                                              const kernel::GridBlocks& blocks, bool random,
                                              SharedWork work);

// The option `rounding=nearest|random`, and its value.
OptionInfo rounding_option();
bool random_rounding(const Options& options);

}  // namespace thinwire
