// Memory that training frees in one step stays with the process for the next.
// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace thinwire::cli {

// Tells glibc's malloc to keep up to 256 MB of freed memory per arena, and to return only arrays
// above 32 MB to the system at once. By default it returns the end of its heap after every step,
// and every page of the next step is a page fault: 590,000 faults in 25 steps of recipe gpt-mini
// with two workers, 78,000 with these limits, and steps took 0.87 of the time (125 ms for 143;
// those of recipe demo, 17 ms, took as long as before). Does nothing with another malloc, or where
// a MALLOC_ variable or GLIBC_TUNABLES is set. Call it before threads.
void keep_freed_memory();

}  // namespace thinwire::cli
