// Course: parses courses of numbers, writes them as text, and gives the value at a time.
// SPDX-License-Identifier: Apache-2.0
#include "core/course.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <utility>

#include "core/number_text.h"

namespace thinwire {
namespace {

constexpr std::string_view kSteps = "steps";
constexpr std::string_view kForms =
    "; write 0.01, warmup(0.001;4), linear(8;2;10), table(0.1;0.01@2) or accordion(0.1;0.01), "
    "times in epochs or, as 1000steps, in steps";

// Of accordions [Agarwal et al., MLSys 2021]: eta, and epochs between two decisions.
constexpr std::string_view kEta = "0.5", kInterval = "10";

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

bool parse_number(std::string_view text, double& number) {
  text = trimmed(text);
  const auto end = text.data() + text.size();
  const auto result = std::from_chars(text.data(), end, number);
  return result.ec == std::errc() && result.ptr == end && std::isfinite(number);
}

double six_digits(double number) {
  char text[32];
  const auto written =
      std::to_chars(text, text + sizeof text, number, std::chars_format::scientific, 5);
  double rounded = number;
  std::from_chars(text, written.ptr, rounded);
  return rounded;
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (size_t end = 0; end != std::string_view::npos;) {
    end = text.find(separator);
    parts.push_back(trimmed(text.substr(0, end)));
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  }
  return parts;
}

}  // namespace

double RunTime::elapsed(uint64_t step, uint64_t steps_per_epoch) const noexcept {
  const auto steps = static_cast<double>(step);
  return in_steps ? steps : steps / static_cast<double>(std::max<uint64_t>(steps_per_epoch, 1));
}

uint64_t RunTime::steps(uint64_t steps_per_epoch) const noexcept {
  constexpr double kMost = 1e15;  // more than any run has, and exact in a double
  const double in_epoch =
      in_steps ? 1 : static_cast<double>(std::max<uint64_t>(steps_per_epoch, 1));
  return static_cast<uint64_t>(std::clamp(std::round(amount * in_epoch), 1.0, kMost));
}

std::string RunTime::canonical() const {
  return shortest(amount) + (in_steps ? std::string(kSteps) : "");
}

Result<RunTime> RunTime::parse(std::string_view text) {
  RunTime time;
  std::string_view number = trimmed(text);
  time.in_steps = number.ends_with(kSteps);
  if (time.in_steps) number.remove_suffix(kSteps.size());
  if (!parse_number(number, time.amount) || time.amount < 0)
    return Status::fail(ErrorCode::kBadOption, "'" + std::string(text) +
                                                   "' is not a time; write 4 for epochs or "
                                                   "1000steps");
  return time;
}

Result<Course> Course::parse(std::string_view text) {
  const auto fail = [&](const std::string& why) {
    return Status::fail(ErrorCode::kBadOption,
                        "'" + std::string(text) + "': " + why + std::string(kForms));
  };
  Course course;
  const std::string_view whole = trimmed(text);
  const size_t open = whole.find('(');
  if (open == std::string_view::npos) {
    course.values_.resize(1);
    if (!parse_number(whole, course.values_[0])) return fail("not a number");
    return course;
  }
  if (!whole.ends_with(')')) return fail("the closing bracket is missing");
  const std::string_view name = trimmed(whole.substr(0, open));
  auto parts = split(whole.substr(open + 1, whole.size() - open - 2), ';');

  size_t numbers = 0;  // parts that are values; the part after them is a time
  if (name == "warmup") {
    course.form_ = Form::kWarmup;
    numbers = 1;
  } else if (name == "linear") {
    course.form_ = Form::kLinear;
    numbers = 2;
  } else if (name == "table") {
    course.form_ = Form::kTable;
  } else if (name == "accordion") {
    course.form_ = Form::kAccordion;
    numbers = 3;
    if (parts.size() < 2 || parts.size() > 4)
      return fail("accordion takes 2 values, then eta and an interval if those are not 0.5 and 10");
    if (parts.size() == 2) parts.push_back(kEta);
    if (parts.size() == 3) parts.push_back(kInterval);
  } else {
    return fail("unknown course '" + std::string(name) + "'");
  }
  if (course.form_ != Form::kTable && parts.size() != numbers + 1)
    return fail(std::string(name) + " takes " + std::to_string(numbers + 1) + " parts");

  for (size_t i = 0; i < parts.size(); ++i) {
    std::optional<std::string_view> value = parts[i], time;
    if (course.form_ == Form::kTable) {
      const size_t at = parts[i].find('@');
      if ((at == std::string_view::npos) != (i == 0))
        return fail("all values of a table but the first have a time");
      if (i > 0) {
        value = parts[i].substr(0, at);
        time = parts[i].substr(at + 1);
      }
    } else if (i == numbers) {
      time = std::exchange(value, std::nullopt);
    }
    if (value && !parse_number(*value, course.values_.emplace_back()))
      return fail("'" + std::string(*value) + "' is not a number");
    if (!time) continue;
    Result<RunTime> parsed = RunTime::parse(*time);
    if (!parsed) return fail(parsed.status().message());
    const RunTime now = parsed.value();
    if (now.amount <= 0) return fail("times must be above 0");
    if (!course.times_.empty() && (now.in_steps != course.times_.back().in_steps ||
                                   now.amount <= course.times_.back().amount))
      return fail("times must ascend, in one unit");
    course.times_.push_back(now);
  }
  if (course.form_ == Form::kWarmup && course.values_[0] <= 0)
    return fail("a warm-up ends above 0");
  if (course.form_ == Form::kAccordion && course.values_[2] <= 0)
    return fail("eta, the relative change of a norm, is above 0");
  return course;
}

double Course::exact(uint64_t step, uint64_t steps_per_epoch) const noexcept {
  if (form_ == Form::kConstant) return values_[0];
  if (form_ == Form::kTable) {
    double value = values_[0];
    for (size_t i = 0; i < times_.size(); ++i)
      if (times_[i].elapsed(step, steps_per_epoch) >= times_[i].amount) value = values_[i + 1];
    return value;
  }
  const double length = times_[0].amount;
  const double elapsed = times_[0].elapsed(step, steps_per_epoch);
  if (elapsed >= length) return values_.back();
  const double whole = std::floor(elapsed);
  if (form_ == Form::kWarmup) return std::pow(values_[0], (whole + 1) / (length + 1));
  return values_[0] + (values_[1] - values_[0]) * whole / length;
}

double Course::at(uint64_t step, uint64_t steps_per_epoch, bool critical) const noexcept {
  if (form_ == Form::kConstant) return values_[0];
  if (form_ == Form::kAccordion) return six_digits(values_[critical ? 0 : 1]);
  return six_digits(exact(step, steps_per_epoch));
}

std::optional<RegimeRule> Course::regime_rule() const {
  if (form_ != Form::kAccordion) return std::nullopt;
  return RegimeRule{.eta = values_[2], .interval = times_[0]};
}

std::vector<double> Course::ends() const {
  std::vector<double> all = values_;
  if (form_ == Form::kWarmup) all.push_back(at(0, 1));
  if (form_ == Form::kAccordion) all.pop_back();  // eta
  return all;
}

std::string Course::canonical() const {
  std::string text;
  for (size_t i = 0; i < values_.size(); ++i) {
    text += (i == 0 ? "" : ";") + shortest(values_[i]);
    if (form_ == Form::kTable && i > 0) text += "@" + times_[i - 1].canonical();
  }
  if (form_ == Form::kConstant) return text;
  if (form_ != Form::kTable) text += ";" + times_[0].canonical();
  return std::string(form_name()) + "(" + text + ")";
}

std::string_view Course::form_name() const noexcept {
  switch (form_) {
    case Form::kWarmup:
      return "warmup";
    case Form::kLinear:
      return "linear";
    case Form::kTable:
      return "table";
    case Form::kAccordion:
      return "accordion";
    case Form::kConstant:
      break;
  }
  return "";
}

}  // namespace thinwire
