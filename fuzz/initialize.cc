// Flags of our own under libFuzzer: --codec=NAME picks a codec, --list prints them all.
// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "fuzz/target.h"

extern "C" int LLVMFuzzerInitialize(int* argc, char*** argv) {
  for (int i = 1; i < *argc; ++i) {
    const std::string flag = (*argv)[i];
    if (flag.starts_with("--codec=")) thinwire::fuzz::pick_codec(flag.substr(8));
    if (flag == "--list") {
      for (const thinwire::CodecEntry* entry : thinwire::list_codecs())
        std::printf("%s\n", std::string(entry->info.name).c_str());
      std::exit(0);
    }
    if (flag.starts_with("--seeds=")) {  // writes the seeds as files and ends
      size_t number = 0;
      for (const auto& seed : fuzz_seeds()) {
        std::ofstream file(
            std::filesystem::path(flag.substr(8)) / ("seed-" + std::to_string(number++)),
            std::ios::binary);
        file.write(reinterpret_cast<const char*>(seed.data()),
                   static_cast<std::streamsize>(seed.size()));
      }
      std::exit(0);
    }
  }
  return 0;
}
