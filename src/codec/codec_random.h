// Random numbers for codecs: they depend on the run, the step, the stream and the sender.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <span>
#include <string_view>

#include "core/checksum.h"
#include "core/random.h"
#include "thinwire/codec.h"

namespace thinwire {

// The sequence of one call; position i of the stream is position i of it. The low 48 bits of the
// step count, all others enter through a checksum, so that two streams or senders share a sequence
// only if 64 bits collide.
inline RandomKey codec_random_key(const Call& call, std::string_view stream) {
  const std::array<uint64_t, 2> who = {call.seed, call.salt};
  return {.seed = checksum(std::as_bytes(std::span(stream)), std::as_bytes(std::span(who))),
          .use = RandomUse::kCodec,
          .step = call.step};
}

}  // namespace thinwire
