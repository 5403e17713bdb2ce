// Finds the processor and cores from /proc/cpuinfo and the scheduler.
// SPDX-License-Identifier: Apache-2.0
#include "core/machine.h"

#include <sched.h>

#include <algorithm>
#include <fstream>
#include <thread>

namespace thinwire {

std::string processor_model() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    if (!line.starts_with("model name")) continue;
    const size_t start = line.find_first_not_of(" \t", line.find(':') + 1);
    if (start != std::string::npos) return line.substr(start);
  }
  return "unknown";
}

int available_cores() {
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return machine_cores();
  return std::max(1, CPU_COUNT(&allowed));
}

int machine_cores() { return std::max(1, static_cast<int>(std::thread::hardware_concurrency())); }

}  // namespace thinwire
