// Finds and links the files of a chain.
// SPDX-License-Identifier: Apache-2.0
#include "train/small_report.h"

#include <algorithm>
#include <system_error>

#include "core/checksum.h"
#include "thinwire/status.h"
#include "train/durable_file.h"

namespace thinwire {

bool has_chain(const std::filesystem::path& folder, const std::vector<SmallChainFile>& chain) {
  return std::all_of(chain.begin(), chain.end(), [&](const SmallChainFile& file) {
    try {
      const auto bytes = read_file(folder / file.name);
      return bytes.size() == file.mark.bytes && checksum(bytes) == file.mark.xxh3;
    } catch (const Error&) {
      return false;
    }
  });
}

void link_chain(const std::filesystem::path& from, const std::vector<SmallChainFile>& chain,
                const std::filesystem::path& to) {
  for (const SmallChainFile& file : chain) {
    std::error_code no_links;
    std::filesystem::create_hard_link(from / file.name, to / file.name, no_links);
    if (no_links) write_durably(to / file.name, read_file(from / file.name));
  }
}

}  // namespace thinwire
