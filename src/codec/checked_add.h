// Adds decoded values with a weight that may carry them beyond the largest float.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstddef>
#include <span>
#include <string_view>

#include "thinwire/codec.h"

namespace thinwire {

// Whether the weight times a finite float is always finite. Exchanges use no other weights;
// decoders then need no look at the products.
inline bool keeps_finite(float weight) noexcept { return std::abs(weight) <= 1; }

// What decode_add of `decoder` does with any other weight: it decodes first, and fails with
// kNonFinite, naming `codec`, where a product is not finite. Values that are zero touch nothing.
// Takes a second array of values.
Status add_checked(const Decoder& decoder, std::string_view codec,
                   std::span<const std::byte> payload, float weight, std::span<float> out);

}  // namespace thinwire
