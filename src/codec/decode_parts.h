// Decoding a payload that holds one part of the stream after another.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "codec/block_option.h"
#include "thinwire/status.h"

namespace thinwire {

// `blocks_of(part)` says how a part is cut into blocks, and so its size in bytes; `add(bytes,
// blocks, out)` adds what they stand for, or returns false where they cannot be right, which is
// then an error that `wrong` explains.
template <typename BlocksOf, typename Add>
Status decode_parts(std::string_view codec, std::span<const Part> parts,
                    std::span<const std::byte> payload, std::span<float> out,
                    const BlocksOf& blocks_of, const Add& add, const char* wrong) {
  const auto fail = [&](ErrorCode code, const char* why) {
    return Status::fail(code, std::string(codec) + ": " + why);
  };
  for (const Part& part : parts) {
    const auto blocks = blocks_of(part);
    const size_t size = blocks.size(part.count);
    if (payload.size() < size) return fail(ErrorCode::kBadLength, "payload is too short");
    if (!add(payload.first(size), blocks, out.subspan(part.begin, part.count)))
      return fail(ErrorCode::kCorrupt, wrong);
    payload = payload.subspan(size);
  }
  if (!payload.empty()) return fail(ErrorCode::kBadLength, "payload is too long");
  return Status::ok();
}

}  // namespace thinwire
