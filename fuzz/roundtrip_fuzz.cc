// Fuzzes round trips: any finite values encode within the bound, decode, and leave exactly the remainder, on every target.
// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <cstring>

#include "fuzz/target.h"
#include "kernel/for_each_target.h"
#include "support/samples.h"

using namespace thinwire;

std::vector<std::vector<uint8_t>> fuzz_seeds() {
  std::vector<std::vector<uint8_t>> seeds;
  for (size_t i = 0; i < fuzz::subject_count(); ++i)
    for (samples::Data data : samples::kAllData) {
      std::vector<uint8_t> seed(fuzz::kSubjectBytes + 4 * 64);
      seed[0] = static_cast<uint8_t>(i);
      seed[1] = static_cast<uint8_t>(i >> 8);
      const auto values = samples::make_values(data, 64);
      std::memcpy(seed.data() + fuzz::kSubjectBytes, values.data(), 4 * 64);
      seeds.push_back(std::move(seed));
    }
  return seeds;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < fuzz::kSubjectBytes + 4) return 0;
  const fuzz::Subject& subject = fuzz::subject_of(data[0], data[1]);
  data += fuzz::kSubjectBytes;
  const size_t given = (size - fuzz::kSubjectBytes) / 4;
  std::vector<float> values(subject.stream.count());
  for (size_t i = 0; i < values.size(); ++i) {  // repeats what is given, a little smaller each time
    std::memcpy(&values[i], data + i % given * 4, 4);
    values[i] = std::isfinite(values[i]) ? values[i] / static_cast<float>(1 + i / given) : 0.0f;
    values[i] = std::fmin(std::fmax(values[i], -1e38f), 1e38f);  // sums of two stay finite
  }
  std::vector<std::byte> first;
  kernel::for_each_target([&](std::string_view target) {
    std::vector<float> rest;
    const auto payload =
        samples::encode(*subject.named.codec, subject.stream, values, values, &rest);
    if (first.empty()) first = payload;
    if (payload != first)
      fuzz::bug(subject.named.canonical + ": other bytes on " + std::string(target));
    std::vector<float> out(values.size(), 0.0f);
    const Status status =
        subject.named.codec->make_decoder(subject.stream)->decode_add(payload, 1.0f, out);
    if (!status) fuzz::bug(subject.named.canonical + ": own payload refused: " + status.message());
    for (size_t i = 0; i < values.size(); ++i)
      if (rest[i] != values[i] - out[i])
        fuzz::bug(subject.named.canonical + ": remainder is not what decoding leaves");
  });
  return 0;
}
