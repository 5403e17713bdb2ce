// The program thinwire with codecs for comparison only.
// SPDX-License-Identifier: Apache-2.0
#include "cli/program.h"
#include "torch_topk.h"

int main(int argc, char** argv) {
  thinwire::lab::register_torch_topk();
  return thinwire::cli::run_program(argc, argv);
}
