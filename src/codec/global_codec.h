// A codec whose streams may have one threshold together: selects by that one where it is given.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "thinwire/codec.h"

namespace thinwire {

// `codec`, whose encoders select by Call::quota where there is one, and in its own way where there is
// none. The payloads are the same ones, and decoders are those of `codec`; only, a stream may be all
// above the threshold, so that a payload may keep all of its values. Codecs that do not select by a
// threshold (CodecInfo::global_threshold) stay as they are.
std::shared_ptr<const Codec> with_global_threshold(std::shared_ptr<const Codec> codec);

}  // namespace thinwire
