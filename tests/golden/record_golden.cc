// Prints the golden file of one codec: record_golden NAME > tests/golden/NAME.txt
// or the sizes of all payloads: record_golden --sizes > tests/golden/payload_sizes.csv
// SPDX-License-Identifier: Apache-2.0
#include <iostream>
#include <string_view>

#include "support/golden_cases.h"
#include "support/payload_sizes.h"

int main(int argc, char** argv) {
  if (argc == 2 && std::string_view(argv[1]) == "--sizes") {
    std::cout << thinwire::samples::payload_sizes();
    return 0;
  }
  for (const thinwire::CodecEntry* entry : thinwire::list_codecs()) {
    if (argc != 2 || entry->info.name != argv[1]) continue;
    std::cout << thinwire::samples::golden_text(*entry);
    return 0;
  }
  std::cerr << "usage: record_golden CODEC | --sizes\n";
  return 2;
}
