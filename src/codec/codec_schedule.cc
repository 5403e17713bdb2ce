// CodecSchedule: parses schedules of codecs and says which codec a step has.
// SPDX-License-Identifier: Apache-2.0
#include "codec/codec_schedule.h"

#include <algorithm>
#include <cmath>

#include "core/number_text.h"

namespace thinwire {
namespace {

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

// The row of a codec's option; null when there is none.
const OptionInfo* find_option(std::string_view codec, std::string_view option) {
  for (const CodecEntry* entry : list_codecs()) {
    if (entry->info.name != codec) continue;
    for (const OptionInfo& row : entry->options)
      if (row.name == option) return &row;
  }
  return nullptr;
}

Status fail(const std::string& why) {
  return Status::fail(ErrorCode::kBadOption, "codec schedule: " + why);
}

}  // namespace

std::string CodecSchedule::Setting::value(double at) const {
  return shortest(whole ? std::round(at) : at);
}

std::optional<RegimeRule> CodecSchedule::Setting::regime_rule() const {
  return course.empty() ? std::nullopt : course[0].regime_rule();
}

std::optional<RegimeRule> CodecSchedule::Phase::regime_rule() const {
  for (const Setting& setting : settings)
    if (const auto rule = setting.regime_rule()) return rule;
  return std::nullopt;
}

template <typename ValueOf>
std::string CodecSchedule::spec(const Phase& phase, const ValueOf& value_of) {
  std::string text = phase.name;
  for (size_t i = 0; i < phase.settings.size(); ++i) {
    const Setting& setting = phase.settings[i];
    text += (i == 0 ? ":" : ",") + setting.key + "=" +
            (setting.course.empty() ? setting.text : value_of(setting));
  }
  return text;
}

Result<CodecSchedule::Phase> CodecSchedule::parse_phase(std::string_view text) {
  Result<SpecText> parsed = parse_spec("codec", trimmed(text));
  if (!parsed) return parsed.status();
  Phase phase{.from = {}, .name = parsed.value().name, .settings = {}};
  for (const auto& [key, value] : parsed.value().settings) {
    Setting setting{.key = key, .text = value, .course = {}};
    if (Course::is_course(value)) {
      const OptionInfo* row = find_option(phase.name, key);
      if (row != nullptr && row->type != OptionType::kInteger && row->type != OptionType::kNumber)
        return fail("option '" + key + "' of " + phase.name + " is no number, so it has no course");
      Result<Course> course = Course::parse(value);
      if (!course) return course.status();
      setting.whole = row != nullptr && row->type == OptionType::kInteger;
      setting.course.push_back(std::move(course).value());
    }
    phase.settings.push_back(std::move(setting));
  }
  if (Status status = check_one_regime(phase); !status) return status;
  return phase;
}

// A stream is in one regime.
Status CodecSchedule::check_one_regime(const Phase& phase) {
  const std::optional<RegimeRule> first = phase.regime_rule();
  for (const Setting& setting : phase.settings)
    if (const auto rule = setting.regime_rule(); rule && *rule != *first)
      return fail("the accordions of " + phase.name +
                  " differ in eta or interval; a stream is in one regime, for all of its options");
  return Status::ok();
}

Result<CodecSchedule> CodecSchedule::parse(std::string_view text) {
  CodecSchedule schedule;
  for (bool first = true;; first = false) {
    const size_t end = text.find('|');
    std::string_view part = trimmed(text.substr(0, end));
    RunTime from;
    if (!first) {
      const size_t colon = part.find(':');
      Result<RunTime> parsed = RunTime::parse(part.substr(0, colon));
      if (!parsed || colon == std::string_view::npos)
        return fail("'" + std::string(part) +
                    "' must begin with the time from which it holds: "
                    "'fp32 | 2: topk' in epochs, '| 500steps: topk'");
      from = parsed.value();
      part.remove_prefix(colon + 1);
      const RunTime before = schedule.phases_.back().from;
      const bool second = schedule.phases_.size() == 1;
      if (from.amount <= 0 ||
          (!second && (from.in_steps != before.in_steps || from.amount <= before.amount)))
        return fail("times must be above 0 and ascend, in one unit");
    }
    Result<Phase> phase = parse_phase(part);
    if (!phase) return phase.status();
    schedule.phases_.push_back(std::move(phase).value());
    schedule.phases_.back().from = from;
    if (end == std::string_view::npos) break;
    text.remove_prefix(end + 1);
  }
  for (const std::string& spec : schedule.ends())
    if (const auto codec = make_codec(spec); !codec) return codec.status();
  return schedule;
}

const CodecSchedule::Phase& CodecSchedule::phase_at(uint64_t step, uint64_t steps_per_epoch) const {
  const Phase* now = &phases_.front();
  for (const Phase& phase : phases_)
    if (phase.from.elapsed(step, steps_per_epoch) >= phase.from.amount) now = &phase;
  return *now;
}

std::string CodecSchedule::spec_at(const Phase& phase, uint64_t step, uint64_t steps_per_epoch,
                                   bool critical) {
  return spec(phase, [&](const Setting& setting) {
    return setting.value(setting.course[0].at(step, steps_per_epoch, critical));
  });
}

std::string CodecSchedule::at(uint64_t step, uint64_t steps_per_epoch, bool critical) const {
  return spec_at(phase_at(step, steps_per_epoch), step, steps_per_epoch, critical);
}

std::optional<RegimeRule> CodecSchedule::regime_rule(uint64_t step,
                                                     uint64_t steps_per_epoch) const {
  return phase_at(step, steps_per_epoch).regime_rule();
}

std::vector<std::pair<std::string, std::string>> CodecSchedule::regimes() const {
  std::vector<std::pair<std::string, std::string>> all;
  for (const Phase& phase : phases_)
    if (phase.regime_rule())
      all.emplace_back(spec_at(phase, 0, 1, true), spec_at(phase, 0, 1, false));
  return all;
}

Status CodecSchedule::check_no_regimes(std::string_view what, std::string_view why) const {
  if (regimes().empty()) return Status::ok();
  return Status::fail(
      ErrorCode::kUnsupported,
      std::string(what) + ": the schedule '" + canonical() +
          "' has an accordion, which follows the norms of the means that an exchange "
          "gives every rank, and " +
          std::string(why) + "; choose a warmup, linear or table");
}

std::vector<std::string> CodecSchedule::ends() const {
  std::vector<std::string> all;
  for (const Phase& phase : phases_) {
    size_t most = 1;
    for (const Setting& setting : phase.settings)
      if (!setting.course.empty()) most = std::max(most, setting.course[0].ends().size());
    for (size_t i = 0; i < most; ++i)
      all.push_back(spec(phase, [&](const Setting& setting) {
        const auto ends = setting.course[0].ends();
        return setting.value(ends[std::min(i, ends.size() - 1)]);
      }));
  }
  return all;
}

bool CodecSchedule::is_constant() const noexcept {
  const auto& settings = phases_.front().settings;
  return phases_.size() == 1 && std::all_of(settings.begin(), settings.end(),
                                            [](const Setting& s) { return s.course.empty(); });
}

bool CodecSchedule::counts_epochs() const noexcept {
  return std::any_of(phases_.begin(), phases_.end(), [](const Phase& phase) {
    return (phase.from.amount > 0 && !phase.from.in_steps) ||
           std::any_of(phase.settings.begin(), phase.settings.end(), [](const Setting& setting) {
             return !setting.course.empty() && setting.course[0].counts_epochs();
           });
  });
}

Status CodecSchedule::check_epochs(std::string_view what, uint64_t steps_per_epoch) const {
  if (steps_per_epoch > 0 || !counts_epochs()) return Status::ok();
  return Status::fail(ErrorCode::kBadOption,
                      std::string(what) + ": the schedule '" + canonical() +
                          "' counts in epochs: give steps_per_epoch, the optimiser's steps in one, "
                          "or write its times in steps, as in warmup(0.001;1000steps)");
}

std::string CodecSchedule::canonical() const {
  if (is_constant()) return make_codec(at(0, 1)).value().canonical;
  std::string text;
  for (const Phase& phase : phases_) {
    if (!text.empty()) text += " | " + phase.from.canonical() + ": ";
    text += spec(phase, [](const Setting& setting) { return setting.course[0].canonical(); });
  }
  return text;
}

}  // namespace thinwire
