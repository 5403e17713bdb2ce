// Replays a fuzz target as an ordinary test: its seeds, mutations of them, and inputs on file.
// SPDX-License-Identifier: Apache-2.0
//
// usage: x_replay [FOLDER]   FOLDER holds inputs that once found a bug
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "core/random.h"
#include "fuzz/target.h"

namespace {

constexpr int kMutations = 60;  // of each seed; all replays together take seconds

// Flips, overwrites, cuts or repeats something, as fuzzers do.
std::vector<uint8_t> mutate(std::vector<uint8_t> input, uint64_t seed) {
  const thinwire::RandomKey key{.seed = seed};
  uint64_t asked = 0;
  const auto below = [&](uint64_t bound) {
    return thinwire::random_below(key, asked++, std::max<uint64_t>(bound, 1));
  };
  for (uint64_t edits = 1 + below(4); edits > 0 && !input.empty(); --edits) {
    const size_t at = below(input.size());
    switch (below(5)) {
      case 0:
        input[at] ^= static_cast<uint8_t>(1u << below(8));
        break;
      case 1:
        input[at] = static_cast<uint8_t>(below(256));
        break;
      case 2:
        input.resize(at);
        break;
      case 3:
        input.insert(input.begin() + static_cast<std::ptrdiff_t>(at),
                     static_cast<uint8_t>(below(256)));
        break;
      default:
        for (size_t i = at; i < input.size() && i < at + 4; ++i) input[i] = 0xff;
    }
  }
  return input;
}

}  // namespace

int main(int argc, char** argv) {
  size_t runs = 0;
  const auto run = [&](const std::vector<uint8_t>& input) {
    LLVMFuzzerTestOneInput(input.data(), input.size());
    ++runs;
  };
  run({});
  uint64_t number = 0;
  for (const auto& seed : fuzz_seeds()) {
    run(seed);
    for (int i = 0; i < kMutations; ++i) run(mutate(seed, ++number));
  }
  if (argc > 1 && std::filesystem::is_directory(argv[1]))
    for (const auto& entry : std::filesystem::directory_iterator(argv[1])) {
      std::ifstream file(entry.path(), std::ios::binary);
      run(std::vector<uint8_t>(std::istreambuf_iterator<char>(file), {}));
    }
  std::printf("%zu inputs\n", runs);
}
