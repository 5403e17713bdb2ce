// place_momentum: one decision for the trainer, for PyTorch and for synchronisers.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "core/named_row.h"
#include "core/number_text.h"
#include "exchange/terms/auto_terms.h"
#include "exchange/terms/sections.h"
#include "thinwire/exchange.h"
#include "thinwire/feedback.h"
#include "thinwire/momentum.h"
#include "thinwire/settled.h"

namespace thinwire {
namespace {

Status refuse(const std::string& why) {
  return Status::fail(ErrorCode::kBadOption, "momentum: " + why);
}

// Whether the codec, in any part of its schedule, leaves most values to its residual in every step.
bool leaves_most(const std::string& codec) {
  auto made = scheduled_codecs(codec);
  const std::vector<NamedCodec>& codecs = made.value();
  return std::any_of(codecs.begin(), codecs.end(), [](const NamedCodec& named) {
    return named.codec->info().sparse || named.codec->info().selective;
  });
}

// What both checks of momentum say of a memory that is named or a codec's default.
Status refuse_twice(const std::string& memory, const std::string& option, double its, double own,
                    const std::string& remedy) {
  return refuse("would act twice: memory '" + memory + "' has a momentum of " + shortest(its) +
                ", and the optimiser one of " + shortest(own) +
                " that would act on the mean of what it sends; set the optimiser's to 0" + remedy +
                ", or give the memory " + option + "=0");
}

// The option of a memory that is its momentum.
std::string option_of(const FeedbackEntry& entry) {
  return entry.plain != nullptr ? "momentum" : "beta";
}

// `name:key=value,...` with the optimiser's momentum, and what `given` says besides.
std::string memory_text(const SpecText& given, const Momentum& own) {
  std::string text = given.name + ":momentum=" + shortest(own.momentum) +
                     ",dampening=" + shortest(own.dampening) +
                     ",nesterov=" + (own.nesterov ? "true" : "false");
  for (const auto& [key, value] : given.settings) text += "," + key + "=" + value;
  return text;
}

Status check_place(std::string_view place) {
  constexpr std::array<std::string_view, 3> kPlaces = {"auto", "memory", "optimizer"};
  return find_row(kPlaces, "place", place, "momentum: ").status();
}

// Of tensors that have one codec: options without rules.
Result<MomentumPlan> place_for(std::string_view place, const Momentum& own,
                               const ExchangeOptions& options, std::string_view usual) {
  MomentumPlan plan{.in_memory = false, .feedback = options.feedback};
  if (own.momentum == 0) return plan;
  const bool automatic = options.feedback == "auto";
  ExchangeOptions asked = options;
  if (automatic) asked.feedback = usual;
  Result<SettledOptions> settled = settled_options(asked);
  if (!settled) return settled.status();
  const std::string name = settled.value().feedback;
  if (own.nesterov && own.dampening != 0) return refuse("Nesterov's form has no dampening");

  const SpecText given = parse_spec("feedback", name).value();
  const auto [entry, memory] = find_feedback(name).value();
  const bool holds = entry->plain != nullptr;  // the momentum of an optimiser
  const bool chosen =
      std::any_of(given.settings.begin(), given.settings.end(), [](const auto& setting) {
        return setting.first == "momentum" || setting.first == "dampening" ||
               setting.first == "nesterov";
      });
  const double other = entry->momentum ? entry->momentum(memory) : 0;
  if (other != 0 && (!holds || chosen || place == "optimizer")) {
    const char* remedy = !holds ? ""
                         : chosen
                             ? ", or name the memory without one, so that it takes the "
                               "optimiser's over"
                             : ", or leave its place to auto, so that the memory takes it over";
    return refuse_twice(given.name, option_of(*entry), other, own.momentum, remedy);
  }
  if (place == "optimizer") return plan;

  // ScaleCom's filtered residual, where nobody names it: in docs/results/methods.md it ends 8.9
  // points behind dense at a density of 0.1, and `ahead` 4.3.
  const bool residual = name == "residual" || (automatic && name == "lowpass");
  const bool can_hold = holds ? !chosen : automatic && (residual || name == "none");
  if (!can_hold) {
    if (place == "auto") return plan;
    return refuse(
        "memory '" + name + "' cannot take it over; " +
        (automatic ? "name ahead or dgc" : "leave the memory to 'auto', name ahead or dgc") +
        ", or leave momentum at the optimiser");
  }
  const bool selects = leaves_most(options.codec);
  const bool lossless = is_lossless(options.codec);
  if (!holds && place == "auto" && !(residual && selects)) return plan;
  plan.in_memory = true;
  if (holds)
    plan.feedback = memory_text(given, own);
  else if ((residual && selects) || lossless)  // one for both: a run may go from one to the other
    plan.feedback = memory_text({.name = "ahead", .settings = {}}, own);
  else if (residual)
    plan.feedback = memory_text({.name = "dgc", .settings = {{"mask", "false"}}}, own);
  else
    plan.feedback = memory_text({.name = "velocity", .settings = {}}, own);
  // Its options' ranges are narrower than an optimiser's.
  if (const Result<NamedFeedback> made = find_feedback(plan.feedback); !made) return made.status();
  return plan;
}

}  // namespace

Result<MomentumPlan> place_momentum(std::string_view place, const Momentum& own,
                                    const ExchangeOptions& options, std::string_view usual) {
  if (Status status = check_place(place); !status) return status;
  if (Status status = check_auto(options); !status) return status;
  const std::vector<ExchangeOptions> settings = settings_of(auto_stand_in(options));
  std::vector<MomentumPlan> plans;
  const auto place_all = [&](std::string_view where) {
    plans.clear();
    for (size_t i = 0; i < settings.size(); ++i) {
      Result<MomentumPlan> plan = place_for(where, own, settings[i], usual);
      if (!plan)
        return Status::fail(plan.status().code(),
                            name_of_setting(options, i) + plan.status().message());
      plans.push_back(std::move(plan.value()));
    }
    return Status::ok();
  };
  const auto in_memory = [](const MomentumPlan& plan) { return plan.in_memory; };
  if (Status status = place_all(place); !status) return status;
  if (std::any_of(plans.begin(), plans.end(), in_memory))
    if (Status status = place_all("memory"); !status) return status;
  MomentumPlan all = plans.front();
  all.rules = options.rules;
  for (size_t i = 0; i < all.rules.size(); ++i) all.rules[i].feedback = plans[i + 1].feedback;
  return all;
}

Status check_momentum_acts_once(double own, const ExchangeOptions& options) {
  if (own == 0) return Status::ok();
  const std::vector<ExchangeOptions> settings = settings_of(auto_stand_in(options));
  for (size_t i = 0; i < settings.size(); ++i) {
    Result<SettledOptions> settled = settled_options(settings[i]);
    if (!settled) return settled.status();
    const std::string& name = settled.value().feedback;
    const auto [entry, memory] = find_feedback(name).value();
    const double its = entry->momentum ? entry->momentum(memory) : 0;
    if (its == 0) continue;
    const Status twice = refuse_twice(std::string(entry->name), option_of(*entry), its, own, "");
    return Status::fail(twice.code(), name_of_setting(options, i) + twice.message());
  }
  return Status::ok();
}

Result<bool> first_moment_acts(std::string_view place, double beta1,
                               const ExchangeOptions& options) {
  if (Status status = check_place(place); !status) return status;
  if (place == "memory")
    return refuse("Adam's moments cannot act in the memory; use auto or optimizer");
  if (Status status = check_auto(options); !status) return status;
  const std::vector<ExchangeOptions> settings = settings_of(auto_stand_in(options));
  const auto spreads_bursts = [](const ExchangeOptions& setting) {
    if (setting.feedback != "auto") return false;
    Result<MomentumPlan> plan = place_for("auto", {.momentum = 0.5}, setting, "auto");
    return plan && plan.value().in_memory;
  };
  if (place == "auto" && std::any_of(settings.begin(), settings.end(), spreads_bursts))
    return false;
  if (Status status = check_momentum_acts_once(beta1, options); !status) return status;
  return true;
}

}  // namespace thinwire
