// Prints the golden file of one codec: record_golden NAME > tests/golden/NAME.txt
// or the sizes of all payloads: record_golden --sizes > tests/golden/payload_sizes.csv
// or a few frames: record_golden --frames > tests/golden/frames.txt
// or the answers to degenerate values: record_golden --degenerate > tests/golden/degenerate.csv
// SPDX-License-Identifier: Apache-2.0
#include <iostream>
#include <string_view>

#include "support/degenerate_answers.h"
#include "support/golden_cases.h"
#include "support/golden_frames.h"
#include "support/payload_sizes.h"

int main(int argc, char** argv) {
  if (argc == 2 && std::string_view(argv[1]) == "--sizes") {
    std::cout << thinwire::samples::payload_sizes();
    return 0;
  }
  if (argc == 2 && std::string_view(argv[1]) == "--frames") {
    std::cout << thinwire::samples::golden_frames();
    return 0;
  }
  if (argc == 2 && std::string_view(argv[1]) == "--degenerate") {
    std::cout << thinwire::samples::degenerate_answers();
    return 0;
  }
  for (const thinwire::CodecEntry* entry : thinwire::list_codecs()) {
    if (argc != 2 || entry->info.name != argv[1]) continue;
    std::cout << thinwire::samples::golden_text(*entry);
    return 0;
  }
  std::cerr << "usage: record_golden CODEC | --sizes | --frames | --degenerate\n";
  return 2;
}
