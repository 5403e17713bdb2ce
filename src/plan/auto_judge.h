// AutoJudge: when measured steps are a reason to look at the link again, or to plan again.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

namespace thinwire {

// Of windows of some steps each, of all ranks together. Rank 0 has it.
class AutoJudge {
 public:
  enum class Wish : uint8_t {
    kNothing,
    kPlan,   // with what is known of the link
    kProbe,  // the link first, then a plan
  };

  // Seconds of a step, and of its arithmetic alone.
  Wish look(double step, double compute);

  // Other codecs from here on, so that steps are others, too.
  void changed() { known_ = false; }

  // Of a probe: 1 % of what passed since the last one, 10 % if steps take another time; at most
  // half a second, or what it needs.
  double probe_seconds() const;
  // The next probe waits until this time is as long as it needs.
  void probed(double next_needs = 0) {
    since_probe_ = 0;
    probe_needs_ = next_needs;
  }

  void passed(double seconds) { since_probe_ += seconds; }

 private:
  bool known_ = false;  // how long steps take with these codecs:
  double step_ = 0;
  double compute_ = 0;
  int odd_ = 0;  // windows in a row in which they took another time
  double since_probe_ = 0;
  double share_ = 0;  // of that, for the next one
  double probe_needs_ = 0;
};

// How many times as fast as steps of now those of another decision must be: 1.05; between two
// codecs that lose something and were both tried 1.02. For a return to fp32, which loses nothing,
// they may be 2 % longer.
double needed_gain(bool from_dense, bool to_dense, bool tried) noexcept;

}  // namespace thinwire
