// add_checked: decodes first, checks that weighted values are finite, then adds.
// SPDX-License-Identifier: Apache-2.0
#include "codec/checked_add.h"

#include <string>
#include <vector>

namespace thinwire {

Status add_checked(const Decoder& decoder, std::string_view codec,
                   std::span<const std::byte> payload, float weight, std::span<float> out) {
  std::vector<float> decoded(out.size());
  if (Status status = decoder.decode(payload, decoded); !status) return status;
  for (const float value : decoded)
    if (!std::isfinite(weight * value))
      return Status::fail(ErrorCode::kNonFinite,
                          std::string(codec) + ": a value times the weight " +
                              std::to_string(weight) + " is not a finite float");
  for (size_t i = 0; i < out.size(); ++i)
    if (decoded[i] != 0) out[i] += weight * decoded[i];
  return Status::ok();
}

}  // namespace thinwire
