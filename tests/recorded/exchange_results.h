// The results and messages of exchanges of a small model, as a table of checksums to compare.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace thinwire::testing {

// One line for each case: the case, a colon, then what it came to.
using Lines = std::vector<std::string>;

// Every codec by every method that takes it, at 1 to 16 ranks that are threads. A line holds, over a
// few steps of which one is skipped, the checksums of the means, of what all ranks' stores hold in the
// end, and the bytes that each rank sent. Frame headers are in the bytes, but not in a checksum.
Lines exchange_results();

}  // namespace thinwire::testing
