// Looks codecs up among the committed results.
// SPDX-License-Identifier: Apache-2.0
#include "cli/known_accuracy.h"

#include <fmt/format.h>

#include "cli/text.h"
#include "thinwire/codec.h"

namespace thinwire::cli {

std::vector<KnownAccuracy> accuracy_of(const std::string& codec) {
  std::vector<KnownAccuracy> found;
  const std::string canonical = make_codec(codec).value().canonical;
  for (const KnownAccuracy& known : known_accuracies())
    if (make_codec(known.codec).value().canonical == canonical) found.push_back(known);
  return found;
}

std::string describe_accuracy(const std::vector<KnownAccuracy>& known) {
  std::vector<std::string> parts;
  for (const KnownAccuracy& one : known)
    parts.push_back(fmt::format("{} {:+.1f}", one.model, one.points));
  return parts.empty() ? "not known" : join(parts, ", ");
}

}  // namespace thinwire::cli
