// A codec that selects by one threshold for several streams, where it is given such a threshold.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "thinwire/codec.h"

namespace thinwire {

// `codec`, whose encoders select by Call::quota if there is one, and in its own way otherwise.
// Payloads and decoders are those of `codec`, but a payload may keep all values of a stream,
// because all may exceed the threshold. Returns `codec` itself if it does not select by a threshold
// (CodecInfo::global_threshold).
std::shared_ptr<const Codec> with_global_threshold(std::shared_ptr<const Codec> codec);

}  // namespace thinwire
