// Fuzzes frames: bytes are a frame or a clean error, and a frame seals to the same bytes again.
// SPDX-License-Identifier: Apache-2.0
#include <cstring>

#include "core/checksum.h"
#include "fuzz/target.h"
#include "thinwire/frame.h"

using namespace thinwire;

std::vector<std::vector<uint8_t>> fuzz_seeds() {
  std::vector<std::vector<uint8_t>> seeds;
  for (size_t payload : {0, 1, 100}) {
    std::vector<uint8_t> seed(kFrameHeaderSize + payload, uint8_t{7});
    seal_frame({.codec = 4,
                .sender = 1,
                .stream = 2,
                .step = 3,
                .place = 5,
                .count = 50,
                .payload_size = payload},
               std::as_writable_bytes(std::span(seed)));
    seeds.push_back(std::move(seed));
  }
  return seeds;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::vector<std::byte> bytes(size);
  if (size > 0) std::memcpy(bytes.data(), data, size);
  for (bool repaired : {false, true}) {
    if (repaired) {  // past the checksum, which random bytes never meet
      uint64_t payload = 0;
      if (size < kFrameHeaderSize) return 0;
      std::memcpy(&payload, bytes.data() + 34, 6);  // u48
      if (payload > size - kFrameHeaderSize) return 0;
      const auto all = std::span(bytes);
      const uint64_t sum = checksum(all.first(40), all.subspan(kFrameHeaderSize, payload));
      std::memcpy(bytes.data() + 40, &sum, sizeof sum);
    }
    auto frame = read_frame(bytes);
    if (!frame) continue;
    std::vector<std::byte> again(kFrameHeaderSize + frame.value().payload.size());
    std::copy(frame.value().payload.begin(), frame.value().payload.end(),
              again.begin() + kFrameHeaderSize);
    seal_frame(frame.value().header, again);
    if (!std::equal(again.begin(), again.end(), bytes.begin()))
      fuzz::bug("a frame that was read seals to other bytes");
  }
  return 0;
}
