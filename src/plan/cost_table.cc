// CostTable: measured costs of codecs, and their file.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <charconv>

#include "codec/codec_schedule.h"
#include "core/machine.h"
#include "core/number_text.h"
#include "exchange/terms/terms.h"
#include "thinwire/step_plan.h"

namespace thinwire {
namespace {

constexpr std::string_view kTitle = "thinwire costs of codecs, version 3";
constexpr std::string_view kProcessor = "processor: ";
constexpr std::string_view kCopies = "copies: ";

// More than any codec costs. Larger numbers, times the values of a model, could add up to infinity.
constexpr double kMostSeconds = 1, kMostBytes = 1e9;

struct Column {
  double CodecCost::*cost;
  double most;
};
constexpr std::array<Column, 6> kColumns = {{{&CodecCost::encode_seconds_per_value, kMostSeconds},
                                             {&CodecCost::decode_seconds_per_value, kMostSeconds},
                                             {&CodecCost::seconds_per_frame, kMostSeconds},
                                             {&CodecCost::bytes_per_value, kMostBytes},
                                             {&CodecCost::bytes_per_frame, kMostBytes},
                                             {&CodecCost::memory_bytes_per_value, kMostBytes}}};

// Norms are one more pass over the values. `thinwire train` measures them, as is usual, and
// tw.compress does not unless it is asked to. Both keep their costs in one file, and each is
// predicted by its own.
std::string key_of(const ExchangeOptions& options) {
  const Terms terms = resolve_terms(options, options.first_step).value();
  return terms.codec_text + " / " + terms.feedback + (options.norms ? "" : " / without norms");
}

std::string_view next_line(std::string_view& text) {
  const size_t end = text.find('\n');
  const std::string_view line = text.substr(0, end);
  text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  return line;
}

// Not a number, either.
bool is_outside(double cost, double most) { return !(cost >= 0 && cost <= most); }

// All of the line.
bool read_seconds(std::string_view line, double& seconds) {
  const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), seconds);
  return error == std::errc() && end == line.data() + line.size() &&
         !is_outside(seconds, kMostSeconds);
}

// Numbers, tabs between them, then the setting. False if it is something else.
bool read_row(std::string_view line, CodecCost& cost, std::string& key) {
  for (const auto& [column, most] : kColumns) {
    const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), cost.*column);
    if (error != std::errc() || is_outside(cost.*column, most)) return false;
    line.remove_prefix(static_cast<size_t>(end - line.data()));
    if (line.empty() || line.front() != '\t') return false;
    line.remove_prefix(1);
  }
  key = line;
  return !key.empty();
}

}  // namespace

CostTable::CostTable() : processor_(processor_model()) {}

const CodecCost& CostTable::of(const ExchangeOptions& options) {
  const CodecSchedule schedule = CodecSchedule::parse(options.codec).value();
  if (!schedule.is_constant())
    throw Error(ErrorCode::kUnsupported,
                "plan: codec '" + options.codec + "' changes over time; plan one codec at a time");
  const std::string key = key_of(options);
  const auto found = costs_.find(key);
  if (found != costs_.end()) return found->second;
  return costs_[key] = measure_codec(options);
}

double CostTable::copies() {
  if (!copies_) copies_ = measure_copies();
  return copies_.value_or(0);
}

void CostTable::set(const ExchangeOptions& options, const CodecCost& cost) {
  costs_[key_of(options)] = cost;
}

std::string CostTable::to_text() const {
  std::string text = std::string(kTitle) + "\n" + std::string(kProcessor) + processor_ + "\n";
  if (copies_) text += std::string(kCopies) + shortest(*copies_) + "\n";
  for (const auto& [key, cost] : costs_) {
    for (const Column& column : kColumns) text += shortest(cost.*column.cost) + "\t";
    text += key + "\n";
  }
  return text;
}

Result<CostTable> CostTable::from_text(std::string_view text) {
  const auto fail = [](size_t number, const std::string& why) {
    return Status::fail(ErrorCode::kCorrupt,
                        "costs of codecs, line " + std::to_string(number) + ": " + why);
  };
  if (next_line(text) != kTitle) return fail(1, "is not '" + std::string(kTitle) + "'");
  const std::string_view processor = next_line(text);
  if (!processor.starts_with(kProcessor)) return fail(2, "names no processor");
  CostTable table;
  table.processor_ = processor.substr(kProcessor.size());
  for (size_t number = 3; !text.empty(); ++number) {
    const std::string_view line = next_line(text);
    if (line.starts_with(kCopies)) {
      double seconds = 0;
      if (!read_seconds(line.substr(kCopies.size()), seconds))
        return fail(number, "names no seconds per byte, from 0 to " + shortest(kMostSeconds));
      table.copies_ = seconds;
      continue;
    }
    CodecCost cost;
    std::string key;
    if (!read_row(line, cost, key))
      return fail(number, "is not " + std::to_string(kColumns.size()) +
                              " numbers and a setting, with tabs between them; numbers are from 0 "
                              "to " +
                              shortest(kMostSeconds) + " s and to " + shortest(kMostBytes) +
                              " bytes");
    table.costs_[key] = cost;
  }
  return table;
}

}  // namespace thinwire
