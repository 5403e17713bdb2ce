// Puts faults, and why ranks were left out, into words.
// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <string_view>

#include "thinwire/step_report.h"

namespace thinwire {

std::string describe(const Fault& fault) {
  if (fault.code == ErrorCode::kPeerLost || fault.code == ErrorCode::kTimeout) return fault.stream;
  if (fault.code == ErrorCode::kOk && fault.rank < 0)
    return fault.stream.empty() ? "no rank took part" : fault.stream;
  if (fault.code == ErrorCode::kOk)
    return "rank " + std::to_string(fault.rank) + " asked to skip the step";
  const std::string of_rank = fault.rank < 0 ? "" : " of rank " + std::to_string(fault.rank);
  const std::string what = fault.code == ErrorCode::kCorrupt ? "arrived corrupt"
                           : fault.rank < 0                  ? "has a sum that is not finite"
                                                             : "has a NaN or Inf";
  return "stream '" + fault.stream + "'" + of_rank + " " + what;
}

std::string_view to_string(LeftOutFor why) noexcept {
  switch (why) {
    case LeftOutFor::kSilence:
      return "silence";
    case LeftOutFor::kCorruption:
      return "corruption";
    case LeftOutFor::kNonFinite:
      return "non-finite values";
    case LeftOutFor::kRequest:
      return "its own request";
    case LeftOutFor::kDisagreement:
      return "disagreement";
    case LeftOutFor::kEquivocation:
      return "equivocation";
  }
  return "?";
}

std::string describe(const LeftOut& left_out) {
  return "rank " + std::to_string(left_out.rank) + " was left out for " +
         std::string(to_string(left_out.why));
}

}  // namespace thinwire
