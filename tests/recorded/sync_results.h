// The results and messages of synchronisers of a small model, as a table to compare.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace thinwire::testing {

// Every method of synchronisers, leaders in groups and with lossy codecs among them, at 1 to 5 ranks that
// are threads. A line holds, over a few rounds, the checksums of all workers' parameters and of what all
// their stores hold in the end, and the bytes that all of them sent.
std::vector<std::string> sync_results();

}  // namespace thinwire::testing
