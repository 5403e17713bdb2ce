// The subjects of fuzzing: all variants of all codecs on a few small streams.
// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "fuzz/target.h"
#include "support/samples.h"

namespace thinwire::fuzz {
namespace {

std::string picked;  // empty: all

std::vector<Subject> make_subjects() {
  std::vector<Subject> subjects;
  for (const CodecEntry* entry : list_codecs()) {
    if (!picked.empty() && entry->info.name != picked) continue;
    for (const std::string& variant : samples::codec_variants(*entry))
      for (const StreamSpec& stream :
           {samples::mixed_tensors(), samples::one_tensor(300),
            samples::one_tensor(120, TensorKind::kConvolution), samples::one_tensor(0)})
        subjects.push_back({make_codec(variant).value(), stream});
  }
  if (subjects.empty()) bug("no codec '" + picked + "'");
  return subjects;
}

const std::vector<Subject>& subjects() {
  static const std::vector<Subject> all = make_subjects();
  return all;
}

}  // namespace

void pick_codec(const std::string& name) { picked = name; }

size_t subject_count() { return subjects().size(); }

const Subject& subject_of(uint8_t first, uint8_t second) {
  return subjects()[(first + size_t{second} * 256) % subjects().size()];
}

std::vector<std::vector<uint8_t>> payload_seeds() {
  std::vector<std::vector<uint8_t>> seeds;
  for (size_t i = 0; i < subject_count(); ++i) {
    const Subject& subject = subject_of(static_cast<uint8_t>(i), static_cast<uint8_t>(i >> 8));
    for (samples::Data data : {samples::Data::kNormal, samples::Data::kSparse}) {
      const auto payload = samples::encode(*subject.named.codec, subject.stream,
                                           samples::make_values(data, subject.stream.count()));
      std::vector<uint8_t> seed = {static_cast<uint8_t>(i), static_cast<uint8_t>(i >> 8)};
      for (std::byte byte : payload) seed.push_back(std::to_integer<uint8_t>(byte));
      seeds.push_back(std::move(seed));
    }
  }
  return seeds;
}

void bug(const std::string& message) {
  std::fprintf(stderr, "BUG: %s\n", message.c_str());
  std::abort();
}

}  // namespace thinwire::fuzz
