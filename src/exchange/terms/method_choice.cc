// Chooses the method of a codec, or says why the named one does not fit.
// SPDX-License-Identifier: Apache-2.0
#include "exchange/terms/method_choice.h"

#include <string_view>
#include <vector>

#include "core/named_row.h"
#include "exchange/rules/vector_rule.h"

namespace thinwire {
namespace {

bool remembers_own(const Combine& rule) {
  return rule.over_vectors() != nullptr && rule.over_vectors()->remembers() == Remembers::kOwn;
}

// Method "auto" of a codec. Method gather carries every codec and takes every rule, but leaves no
// shards: then there may be none.
const MethodEntry* usual_method(const Codec& codec, const Combine& rule, Results results) {
  const MethodEntry* best = nullptr;
  for (const MethodEntry* method : list_methods()) {
    if (method->preference == 0 || !method->carries(codec)) continue;
    if (rule.wants_rows() && !method->combines) continue;
    if (remembers_own(rule) && !method->everybody) continue;
    if (results == Results::kShard && !method->leaves_shards) continue;
    if (best == nullptr || method->preference < best->preference) best = method;
  }
  return best;
}

// What users may name: a method, or none, which leaves the choice to the codec.
struct MethodChoice {
  std::string_view name;
  const MethodEntry* method = nullptr;
};

std::vector<MethodChoice> method_choices() {
  std::vector<MethodChoice> choices = {{.name = "auto"}};
  for (const MethodEntry* method : list_methods())
    choices.push_back({.name = method->name, .method = method});
  return choices;
}

}  // namespace

Result<const MethodEntry*> resolve_method(const std::string& name, const Codec& codec,
                                          const Combine& rule, Results results) {
  const MethodEntry* const usual = usual_method(codec, rule, results);
  if (results == Results::kShard && rule.over_vectors() != nullptr &&
      rule.over_vectors()->remembered_rows() > 0)
    return Status::fail(
        ErrorCode::kUnsupported,
        "exchange: centred_clipping and licm follow the whole result from step to step, of "
        "which ranks have shards; choose full results, or another rule");
  if (usual == nullptr)
    return Status::fail(
        ErrorCode::kUnsupported,
        "exchange: codec '" + std::string(codec.info().name) +
            "' leaves no shards: these go with scatter-reduce and dense, whose codecs write "
            "every value in a fixed number of bytes (fp32, fp16, bf16, int8, ...)");
  const auto choices = method_choices();
  auto found = find_row(choices, "method", name, "exchange: ");
  if (!found) return found.status();
  const MethodEntry* const method = found.value()->method;
  if (method == nullptr) return usual;
  const auto refuse = [&](const std::string& why) {
    return Status::fail(ErrorCode::kUnsupported, "exchange: method " + name + " " + why + "; use " +
                                                     std::string(usual->name));
  };
  if (rule.wants_rows() && !method->combines) return refuse("combines contributions by mean alone");
  if (remembers_own(rule) && !method->everybody)
    return refuse(
        "gives each rank its part of all contributions, and this rule keeps what follows from all");
  if (results == Results::kShard && !method->leaves_shards) return refuse("leaves no shards");
  if (!method->carries(codec))
    return refuse(std::string(method->refusal) + " codec '" + std::string(codec.info().name) + "'");
  return method;
}

}  // namespace thinwire
