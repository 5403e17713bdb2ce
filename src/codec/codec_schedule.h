// CodecSchedule: a text that names codecs, options and when they change, and the codec of a step.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/course.h"
#include "thinwire/codec.h"
#include "thinwire/status.h"

namespace thinwire {

// `codec` of an exchange or a boundary, taken apart. A pure function of the step, and of a stream's
// regime where it has an accordion, so that ranks agree by agreeing on the text, and a resumed run
// needs no more than its step and those regimes.
class CodecSchedule {
 public:
  // Fails unless every codec that it comes to can be made.
  static Result<CodecSchedule> parse(std::string_view text);

  // The codec of `step` as make_codec takes it, for streams in a critical regime or for the others.
  std::string at(uint64_t step, uint64_t steps_per_epoch, bool critical = true) const;

  // What decides in `step` whether a stream is in a critical regime; absent where no option depends
  // on it.
  std::optional<RegimeRule> regime_rule(uint64_t step, uint64_t steps_per_epoch) const;

  // Of each phase that has an accordion: the codec in critical regimes, and the one outside.
  std::vector<std::pair<std::string, std::string>> regimes() const;

  // Fails where some phase has an accordion. `what` is the origin, and `why` says what is missing
  // there.
  Status check_no_regimes(std::string_view what, std::string_view why) const;

  // Those of every phase, with options at the ends of their courses: all between them are alike.
  std::vector<std::string> ends() const;

  bool is_constant() const noexcept;
  bool counts_epochs() const noexcept;  // some time in it is in epochs

  // Fails, saying what to give, where it counts in epochs of which nobody knows how long they are
  // (0). `what` is the origin: "exchange".
  Status check_epochs(std::string_view what, uint64_t steps_per_epoch) const;

  std::string canonical() const;

 private:
  struct Setting {
    std::string key;
    std::string text;  // unless it has a course
    std::vector<Course> course;
    bool whole = false;  // the option takes whole numbers: the nearest
    std::optional<RegimeRule> regime_rule() const;
    std::string value(double at) const;
  };
  struct Phase {
    RunTime from;
    std::string name;
    std::vector<Setting> settings;
    std::optional<RegimeRule> regime_rule() const;
  };

  static Result<Phase> parse_phase(std::string_view text);
  static Status check_one_regime(const Phase& phase);
  const Phase& phase_at(uint64_t step, uint64_t steps_per_epoch) const;
  static std::string spec_at(const Phase& phase, uint64_t step, uint64_t steps_per_epoch,
                             bool critical);
  // With each setting that has a course at value_of(setting).
  template <typename ValueOf>
  static std::string spec(const Phase& phase, const ValueOf& value_of);

  std::vector<Phase> phases_;
};

}  // namespace thinwire
