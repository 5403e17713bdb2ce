// Finds the section of every tensor: the first rule whose pattern fits its name decides.
// SPDX-License-Identifier: Apache-2.0
#include "exchange/terms/sections.h"

#include <algorithm>

#include "exchange/terms/agreement_text.h"
#include "exchange/terms/auto_terms.h"
#include "thinwire/near_miss.h"

namespace thinwire {
namespace {

// 0: no rule; i + 1: rule i.
size_t setting_for(const std::string& name, const std::vector<TensorRule>& rules) {
  for (size_t rule = 0; rule < rules.size(); ++rule)
    if (fits_pattern(name, rules[rule].pattern)) return rule + 1;
  return 0;
}

// "names: a, b, c, ...; did you mean 'b'?"
std::string names_beside(const std::string& pattern, const std::vector<TensorSpec>& tensors) {
  constexpr size_t kShown = 8;
  std::vector<std::string> names;
  for (const TensorSpec& tensor : tensors) names.push_back(tensor.name);
  std::string text = "names: ";
  for (size_t i = 0; i < std::min(kShown, names.size()); ++i)
    text += (i > 0 ? ", " : "") + names[i];
  return text + (names.size() > kShown ? ", ..." : "") + did_you_mean(pattern, names);
}

Status check_patterns(const ExchangeOptions& options, const std::vector<TensorSpec>& tensors) {
  std::vector<bool> decides(options.rules.size() + 1);
  for (const TensorSpec& tensor : tensors) decides[setting_for(tensor.name, options.rules)] = true;
  for (size_t rule = 0; rule < options.rules.size(); ++rule) {
    if (decides[rule + 1]) continue;
    const std::string& pattern = options.rules[rule].pattern;
    const bool fits = std::any_of(tensors.begin(), tensors.end(), [&](const TensorSpec& tensor) {
      return fits_pattern(tensor.name, pattern);
    });
    return Status::fail(ErrorCode::kUnknownName,
                        "exchange: " + name_of_setting(options, rule + 1) +
                            (fits ? "rules before it decide for all tensors that are named so"
                                  : "no tensor is named so; " + names_beside(pattern, tensors)));
  }
  return Status::ok();
}

Result<Terms> resolve_setting(const ExchangeOptions& all, const ExchangeOptions& own,
                              size_t setting, uint64_t step) {
  Result<Terms> resolved = resolve_terms(own, step);
  if (resolved || setting == 0) return resolved;
  std::string_view why = resolved.status().message();
  constexpr std::string_view kPrefix = "exchange: ";
  if (why.starts_with(kPrefix)) why.remove_prefix(kPrefix.size());
  return Status::fail(resolved.status().code(),
                      std::string(kPrefix) + name_of_setting(all, setting) + std::string(why));
}

}  // namespace

std::vector<ExchangeOptions> settings_of(const ExchangeOptions& options) {
  std::vector<ExchangeOptions> settings(1, options);
  settings.front().rules.clear();
  for (const TensorRule& rule : options.rules) {
    ExchangeOptions own = settings.front();
    own.codec = rule.codec;
    own.feedback = rule.feedback;
    own.method = rule.method;
    own.grouping = rule.grouping;
    settings.push_back(std::move(own));
  }
  return settings;
}

std::string name_of_setting(const ExchangeOptions& options, size_t setting) {
  return setting == 0 ? "" : "rule '" + options.rules[setting - 1].pattern + "': ";
}

Status check_exchange(const ExchangeOptions& given) {
  if (Status status = check_auto(given); !status) return status;
  const ExchangeOptions options = auto_stand_in(given);
  const std::vector<ExchangeOptions> settings = settings_of(options);
  for (size_t setting = 0; setting < settings.size(); ++setting)
    if (const auto resolved =
            resolve_setting(options, settings[setting], setting, options.first_step);
        !resolved)
      return resolved.status();
  return Status::ok();
}

Result<Sections> resolve_sections(const ExchangeOptions& options,
                                  const std::vector<TensorSpec>& tensors, uint64_t step) {
  const std::vector<ExchangeOptions> settings = settings_of(options);
  std::vector<Terms> terms;
  for (size_t setting = 0; setting < settings.size(); ++setting) {
    Result<Terms> resolved = resolve_setting(options, settings[setting], setting, step);
    if (!resolved) return resolved.status();
    terms.push_back(std::move(resolved.value()));
  }
  if (Status status = check_patterns(options, tensors); !status) return status;

  std::vector<std::vector<size_t>> members(
      settings.size());  // by the first setting that says the same
  std::vector<size_t> alike;
  std::vector<std::string> texts;
  for (const ExchangeOptions& setting : settings) {
    texts.push_back(setting_text(setting));
    alike.push_back(
        static_cast<size_t>(std::find(texts.begin(), texts.end(), texts.back()) - texts.begin()));
  }
  for (size_t index = 0; index < tensors.size(); ++index)
    members[alike[setting_for(tensors[index].name, options.rules)]].push_back(index);

  Sections sections{
      .used = {}, .of_tensor = std::vector<size_t>(tensors.size()), .of_setting = {}, .of_all = {}};
  for (size_t setting = 0; setting < settings.size(); ++setting) {
    if (alike[setting] < setting) {
      sections.of_setting.push_back(sections.of_setting[alike[setting]]);
      continue;
    }
    const bool used = !members[setting].empty();
    sections.of_setting.push_back(used ? sections.used.size() : kUnused);
    for (const size_t index : members[setting]) sections.of_tensor[index] = sections.used.size();
    if (used)
      sections.used.push_back({.options = settings[setting],
                               .terms = std::move(terms[setting]),
                               .tensors = std::move(members[setting])});
  }
  if (sections.used.size() > kMaxSections)
    return Status::fail(ErrorCode::kBadOption,
                        "exchange: rules with " + std::to_string(sections.used.size()) +
                            " different settings; at most " + std::to_string(kMaxSections));
  return sections;
}

Plan plan_of(const Sections& sections, const std::vector<TensorSpec>& tensors,
             const ExchangeOptions& options) {
  std::vector<SectionLayout> layouts;
  for (const Section& section : sections.used)
    layouts.push_back({.grouping = section.terms.grouping, .divisible = section.terms.divisible});
  return make_plan(tensors, {.plain_kinds = options.dense_kinds,
                             .bucket_bytes = options.bucket_bytes,
                             .sections = std::move(layouts),
                             .section_of = sections.of_tensor,
                             .of_all = sections.of_all,
                             .owners = options.owners});
}

}  // namespace thinwire
