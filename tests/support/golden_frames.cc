// Makes frames with every flag and every field, with the largest numbers that fit.
// SPDX-License-Identifier: Apache-2.0
#include "support/golden_frames.h"

#include <sstream>
#include <vector>

#include "support/golden_cases.h"
#include "thinwire/frame.h"

namespace thinwire::samples {
namespace {

std::string line(FrameHeader header, size_t payload_size) {
  header.payload_size = payload_size;
  std::vector<std::byte> frame(kFrameHeaderSize + payload_size);
  for (size_t i = 0; i < payload_size; ++i) frame[kFrameHeaderSize + i] = std::byte(i * 7 + 1);
  seal_frame(header, frame);
  std::ostringstream text;
  text << +header.codec << ' ' << +header.flags << ' ' << +header.round << ' ' << header.sender
       << ' ' << header.generation << ' ' << header.stream << ' ' << header.step << ' '
       << header.place << ' ' << header.count << ' '
       << hex(std::span(frame).subspan(kFrameHeaderSize)) << ' ' << hex(frame) << '\n';
  return text.str();
}

}  // namespace

std::string golden_frames() {
  const uint64_t most = kFrameFieldMax;
  return line({.codec = 4, .sender = 1, .stream = 2, .step = 3, .place = 0, .count = 5}, 6) +
         line({.codec = 6, .flags = kFrameNonFinite, .sender = 2, .step = 9, .count = 7}, 0) +
         line({.codec = 18, .flags = kFrameRound, .round = 2, .place = 64, .count = 4}, 16) +
         line({.codec = 10, .flags = kFrameResult, .sender = 3, .step = 1, .place = 32768}, 300) +
         line({.codec = 255,
               .flags = kFrameRound | kFrameResult | kFrameNonFinite,
               .round = 255,
               .sender = 65534,
               .generation = 0xFFFFFFFF,
               .stream = 0xFFFFFFFF,
               .step = most,
               .place = most,
               .count = most},
              0);
}

}  // namespace thinwire::samples
