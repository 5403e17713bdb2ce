// How many threads a call of a codec or a memory may use.
// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace thinwire {

// For vectors of half a million values and more: the caller's thread and up to count - 1 others, which
// all calls of the process share; a call that finds them busy does its work alone. 0 is one for each
// core. It is 1 at first, which is right where each core has a worker of its own. Results are the same
// bits for any count. Takes effect with the next call; safe from any thread. Throws Error(kContract)
// for a negative count.
void set_codec_threads(int count);
int codec_threads() noexcept;

}  // namespace thinwire
