// Prints the table on file: record_exchanges > tests/recorded/exchange_results.txt
// SPDX-License-Identifier: Apache-2.0
#include <iostream>

#include "recorded/exchange_results.h"

int main() {
  for (const std::string& line : thinwire::testing::exchange_results()) std::cout << line << "\n";
}
