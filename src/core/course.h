// Course: a number that changes during a run: a density, a number of bits, a rank.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "thinwire/status.h"

namespace thinwire {

// Time since the start of a run, as users write it: "4" epochs or "1000steps".
struct RunTime {
  double amount = 0;
  bool in_steps = false;

  bool operator==(const RunTime&) const = default;

  // The nearest number of steps, at least one.
  uint64_t steps(uint64_t steps_per_epoch) const noexcept;

  // Time done before `step`, in this one's unit. A run without epochs has one step in each.
  double elapsed(uint64_t step, uint64_t steps_per_epoch) const noexcept;
  std::string canonical() const;

  static Result<RunTime> parse(std::string_view text);  // >= 0
};

// Whether a stream is in a critical regime of training, in which it is compressed weakly [Agarwal
// et al., MLSys 2021]: the norm of its accumulated gradient has changed by `eta` of itself, or
// more, since `interval` ago.
struct RegimeRule {
  double eta = 0;
  RunTime interval;

  bool operator==(const RegimeRule&) const = default;
};

// A function of the step, and of the regime where it says so. With T a RunTime and t the whole
// units of T done so far:
//
//   0.01                      always that
//   warmup(v;T)               v^((t + 1) / (T + 1)) before T, then v: DGC's exponential warm-up
//                             from about 1 [Lin et al., ICLR 2018; the authors' repository]
//   linear(a;b;T)             a + (b - a) t / T before T, then b
//   table(a;b@T;c@U)          a before T, b from T on, c from U on; T < U, all in the same unit
//   accordion(a;b;eta;T)      a in critical regimes, b outside; eta is 0.5 and T 10 epochs if
//                             absent, the paper's
//
// Values are rounded to six digits, so that machines whose pow() differs in its last bit agree.
class Course {
 public:
  static Result<Course> parse(std::string_view text);

  // Whether `text` is one that changes, rightly written or not.
  static bool is_course(std::string_view text) noexcept {
    return text.find('(') != std::string_view::npos;
  }

  double at(uint64_t step, uint64_t steps_per_epoch, bool critical = true) const noexcept;

  // What decides whether a regime is critical; absent where the value does not depend on it.
  std::optional<RegimeRule> regime_rule() const;

  bool counts_epochs() const noexcept { return !times_.empty() && !times_.front().in_steps; }

  // Its largest and smallest values, among others.
  std::vector<double> ends() const;

  std::string canonical() const;

 private:
  enum class Form : uint8_t { kConstant, kWarmup, kLinear, kTable, kAccordion };

  double exact(uint64_t step, uint64_t steps_per_epoch) const noexcept;
  std::string_view form_name() const noexcept;

  Form form_ = Form::kConstant;
  std::vector<double> values_;  // of an accordion: a, b, eta
  std::vector<RunTime> times_;  // of a table: when each value but the first begins
};

}  // namespace thinwire
