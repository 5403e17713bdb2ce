// Prints the golden file of one codec: record_golden NAME > tests/golden/NAME.txt
// SPDX-License-Identifier: Apache-2.0
#include <iostream>

#include "support/golden_cases.h"

int main(int argc, char** argv) {
  for (const thinwire::CodecEntry* entry : thinwire::list_codecs()) {
    if (argc != 2 || entry->info.name != argv[1]) continue;
    std::cout << thinwire::samples::golden_text(*entry);
    return 0;
  }
  std::cerr << "usage: record_golden CODEC\n";
  return 2;
}
