// thinwire::measure: the moments of a vector, for callers outside the library.
// SPDX-License-Identifier: Apache-2.0
#include "kernel/vector_moments.h"
#include "thinwire/codec.h"

namespace thinwire {

Moments measure(std::span<const float> values) { return kernel::moments(values); }

}  // namespace thinwire
