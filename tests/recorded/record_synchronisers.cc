// Prints the table on file: record_synchronisers > tests/recorded/sync_results.txt
// SPDX-License-Identifier: Apache-2.0
#include <iostream>

#include "recorded/sync_results.h"

int main() {
  for (const std::string& line : thinwire::testing::sync_results()) std::cout << line << "\n";
}
