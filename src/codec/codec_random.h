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

// The key that a payload carries where receivers repeat the draws. `stream` is a checksum of its
// name. Two draws: the first takes in what all ranks know, the second who sends, unless all ranks
// share the key.
inline uint64_t payload_key(const Call& call, uint64_t stream, bool shared) {
  const auto first_64 = [](const RandomKey& key, uint64_t block) {
    const std::array<uint32_t, 4> words = random_block(key, block);
    return uint64_t{words[1]} << 32 | words[0];
  };
  const RandomKey where{.seed = call.seed, .use = RandomUse::kCodec, .step = call.step};
  const RandomKey who{.seed = first_64(where, call.offset) ^ stream, .use = RandomUse::kCodec};
  return first_64(who, shared ? 0 : 1 + call.salt);
}

}  // namespace thinwire
