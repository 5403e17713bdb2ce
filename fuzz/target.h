// The interface of fuzz targets: a function on bytes, and seeds to start from.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "thinwire/codec.h"

namespace thinwire::fuzz {

// The codecs under test: those of the registry, or the one that --codec=NAME picks.
void pick_codec(const std::string& name);

// One variant of a codec on one stream, chosen by the first two bytes of an input.
struct Subject {
  NamedCodec named;
  StreamSpec stream;
};
inline constexpr size_t kSubjectBytes = 2;
const Subject& subject_of(uint8_t first, uint8_t second);
size_t subject_count();

// Seeds whose tail is a genuine payload of their subject.
std::vector<std::vector<uint8_t>> payload_seeds();

// Ends the process with a message: a bug was found.
[[noreturn]] void bug(const std::string& message);

}  // namespace thinwire::fuzz

// Each *_fuzz.cc defines these two beside LLVMFuzzerTestOneInput.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);
std::vector<std::vector<uint8_t>> fuzz_seeds();
