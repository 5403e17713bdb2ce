// The members of a step's report that Python sees, for both extension modules.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "thinwire/exchange.h"

namespace thinwire::python {

// Calls `set` with the name and value of every number of one stream, and with its codec.
template <typename Set>
void each_counter(const StreamCounters& counters, const Set& set) {
  set("values", counters.values);
  set("kept", counters.kept);
  set("target", counters.target);
  set("payload_bytes", counters.payload_bytes);
  set("frame_bytes", counters.frame_bytes);
  set("reduced", counters.reduced);
  set("dense_frames", counters.dense_frames);
  set("rest_norm", counters.rest_norm);
  set("gradient_norm", counters.gradient_norm);
  set("codec", counters.codec);
}

// The same of a whole step, but for its fault, the ranks left out and its streams.
template <typename Set>
void each_total(const StepReport& report, const Set& set) {
  set("step", report.step);
  set("skipped", report.skipped);
  set("participants", report.participants);
  set("dense_bytes", report.dense_bytes);
  set("sent_bytes", report.sent_bytes);
  set("inside_bytes", report.inside_bytes);
  set("between_bytes", report.between_bytes);
  set("received_bytes", report.received_bytes);
  set("compress_seconds", report.compress_seconds);
  set("wire_seconds", report.wire_seconds);
  set("decompress_seconds", report.decompress_seconds);
  set("wait_seconds", report.wait_seconds);
}

}  // namespace thinwire::python
