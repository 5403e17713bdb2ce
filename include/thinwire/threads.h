// The number of threads that a call of a codec or a memory may use.
// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace thinwire {

// Sets the number of threads for vectors of half a million values and more: the caller's thread and
// up to count - 1 others. All calls of the process share these others; a call that finds them busy
// works alone. 0 means one thread for each core. The default is 1, which is right if each core has
// a worker of its own. Results have the same bits for any count. The setting takes effect with the
// next call, and may be changed from any thread. Throws Error(kContract) for a negative count.
void set_codec_threads(int count);
int codec_threads() noexcept;

}  // namespace thinwire
