// Reads the sections of a recipe, and finds mistakes that involve several keys.
// SPDX-License-Identifier: Apache-2.0
#include "train/recipe_parts.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <string_view>
#include <utility>
#include <vector>

#include "sync/round_terms.h"
#include "thinwire/auto_codec.h"
#include "thinwire/trainer.h"
#include "train/attack.h"
#include "train/flush.h"
#include "train/label_shards.h"
#include "train/pipeline/pipeline_options.h"
#include "train/recipe_rules.h"
#include "train/run_device.h"
#include "train/small_options.h"
#include "train/tensor/tensor_options.h"

namespace thinwire {
namespace {

using Faults = std::vector<RecipeFault>;

Faults refuse(std::string key, std::string why) {
  return {{std::move(key), Status::fail(ErrorCode::kBadOption, std::move(why))}};
}

// Adds the error that a check ends in, if it does.
void add_fault_of(std::string key, const std::function<void()>& check, Faults& faults) {
  try {
    check();
  } catch (const Error& error) {
    faults.push_back({std::move(key), Status::fail(error.code(), error.what())});
  }
}

// One setting at a time, so that the key to blame is known.
Faults find_data_faults(const Options& recipe) {
  const DataRequest all = data_request(recipe, "");
  const std::pair<const char*, std::function<void(DataRequest&)>> settings[] = {
      {"data.augment", [&](DataRequest& one) { one.augment = all.augment; }},
      {"data.crop", [&](DataRequest& one) { one.crop = all.crop; }},
      {"data.sequence", [&](DataRequest& one) { one.sequence = all.sequence; }},
      {"data.wrong_labels", [&](DataRequest& one) { one.wrong_labels = all.wrong_labels; }}};
  Faults faults;
  for (const auto& [key, set] : settings) {
    DataRequest one{.name = all.name};
    set(one);
    add_fault_of(
        key, [&, &one = one] { check_data_request(one); }, faults);
  }
  return faults;
}

Faults find_model_faults(const Options& recipe) {
  const ModelOptions all = model_options(recipe);
  const bool categories = has_categories(recipe.text("data.name"));
  const std::pair<const char*, std::function<void(ModelOptions&)>> settings[] = {
      {"model.width", [&](ModelOptions& one) { one.width = all.width; }},
      {"model.hidden", [&](ModelOptions& one) { one.hidden = all.hidden; }},
      {"model.layers", [&](ModelOptions& one) { one.layers = all.layers; }},
      {"model.embedding", [&](ModelOptions& one) { one.embedding = all.embedding; }},
      {"model.activation", [&](ModelOptions& one) { one.activation = all.activation; }},
      {"model.dropout", [&](ModelOptions& one) { one.dropout = all.dropout; }}};
  Faults faults;
  for (const auto& [key, set] : settings) {
    ModelOptions one{.name = all.name};
    set(one);
    add_fault_of(
        key, [&, &one = one] { check_model(one, categories); }, faults);
  }
  return faults;
}

Faults find_optimizer_faults(const Options& recipe) {
  if (!recipe.flag("optimizer.nesterov") || recipe.text("optimizer.name") != "sgd") return {};
  if (recipe.number("optimizer.momentum") == 0)
    return refuse("optimizer.nesterov", "needs optimizer.momentum greater than 0");
  if (recipe.number("optimizer.dampening") != 0)
    return refuse("optimizer.nesterov", "has no dampening: optimizer.dampening");
  return {};
}

Faults find_judge_faults(const Options& recipe) {
  if (recipe.integer("sync.judge_samples") == 0) return {};
  const std::string& method = recipe.text("sync.method");
  auto found = find_synchroniser(method);
  const bool compares = found && found.value().entry->by_loss;
  if (compares && recipe.integer("data.hold_out") > 0) return {};
  return refuse("sync.judge_samples",
                compares ? "needs data.hold_out" : "only leader chooses workers");
}

// Who of a network that several workers share has a part of it, in words; empty for networks that
// workers have whole.
std::string sharers(const Options& recipe) {
  if (recipe.integer("pipeline.stages") > 0) return "pipelines, whose stages";
  if (recipe.integer("tensor.ranks") > 0) return "tensor parallelism, whose ranks";
  return "";
}

// The key that makes it so.
std::string sharing_key(const Options& recipe) {
  return recipe.integer("pipeline.stages") > 0 ? "pipeline.stages" : "tensor.ranks";
}

// Workers with samples or a speed of their own.
Faults find_shard_faults(const Options& recipe) {
  const std::string& shards = recipe.text("data.shards");
  const bool pipeline = recipe.integer("pipeline.stages") > 0;
  const bool tensor = recipe.integer("tensor.ranks") > 0;
  Faults faults;
  if ((pipeline || tensor) && !recipe.numbers("run.slow").empty())
    faults = refuse("run.slow", pipeline ? "stages of a pipeline are not slowed"
                                         : "ranks that share layers (tensor.ranks) are not slowed");
  if (shards.empty()) return faults;
  add_fault_of(
      "data.shards",
      [&] {
        if (pipeline)
          throw Error(ErrorCode::kBadOption, "stages of a pipeline see the same samples");
        if (tensor)
          throw Error(ErrorCode::kBadOption,
                      "ranks that share layers (tensor.ranks) see the same samples");
        if (recipe.flag("train.fixed_batches"))
          throw Error(ErrorCode::kBadOption,
                      "batches of shards are not fixed: train.fixed_batches");
        shard_alpha(shards);
      },
      faults);
  return faults;
}

// Without the momentum's place.
ExchangeOptions plain_exchange_options(const Options& recipe) {
  ExchangeOptions options;
  options.codec = recipe.text("exchange.codec");
  options.feedback = recipe.text("exchange.feedback");
  options.method = recipe.text("exchange.method");
  options.combine = recipe.text("exchange.combine");
  options.grouping = parse_grouping(recipe.text("exchange.grouping")).value();
  options.inside = static_cast<int>(recipe.integer("exchange.inside"));
  options.rules = parse_rules(recipe.text("exchange.rules")).value();
  options.bucket_bytes = static_cast<size_t>(recipe.integer("exchange.bucket_kb")) * 1024;
  options.seed = static_cast<uint64_t>(recipe.integer("train.seed"));
  options.max_skipped = static_cast<int>(recipe.integer("exchange.max_skipped"));
  return options;
}

// Whether workers step by themselves.
bool is_local(const Options& recipe) { return !recipe.text("sync.method").empty(); }

// Workers that step by themselves have their optimiser's momentum to themselves, and send none of
// it.
Result<MomentumPlan> momentum_plan(const Options& recipe) {
  const bool local = is_local(recipe);
  const std::string& place = recipe.text("exchange.momentum");
  const std::string& kind = recipe.text("optimizer.name");
  const auto cannot = [](const std::string& why) {
    return Status::fail(ErrorCode::kBadOption, why + "; use auto or optimizer");
  };
  if (place == "memory" && !local) {
    if (kind == "novograd")
      return cannot("novograd's momentum is that of scaled gradients and cannot act in the memory");
    if (kind == "signsgd") return cannot("signsgd has no momentum that could act in the memory");
    if (kind == "sgd" && recipe.number("optimizer.momentum") == 0)
      return cannot("memory needs optimizer.momentum greater than 0, which would act there");
  }
  const Momentum own = local ? Momentum{} : own_momentum(recipe);
  return place_momentum(place, own, plain_exchange_options(recipe));
}

// NovoGrad's mean is one of scaled gradients, and acts beside every codec.
Result<bool> first_moment_plan(const Options& recipe) {
  const std::string& kind = recipe.text("optimizer.name");
  if ((kind != "adam" && kind != "novograd") || is_local(recipe)) return true;
  return first_moment_acts(kind == "novograd" ? "optimizer" : recipe.text("exchange.momentum"),
                           recipe.number("optimizer.beta1"), plain_exchange_options(recipe));
}

// What a local method cannot do, as far as that is known without ranks and weights.
Faults find_round_faults(const Options& recipe) {
  if (auto found = find_synchroniser(recipe.text("sync.method")); !found)
    return {{"sync.method", found.status()}};
  const auto check = [](const SynchroniserOptions& options) {
    Result<RoundTerms> terms = round_terms(options);
    if (!terms || !terms.value().exchange) return terms.status();
    return check_exchange(*terms.value().exchange);
  };
  SynchroniserOptions options = synchroniser_options(recipe);
  Status status = check(options);
  if (status) return {};
  const std::pair<const char*, std::string SynchroniserOptions::*> settings[] = {
      {"exchange.momentum", &SynchroniserOptions::momentum},
      {"exchange.feedback", &SynchroniserOptions::feedback},
      {"exchange.method", &SynchroniserOptions::exchange}};
  for (const auto& [key, setting] : settings) {
    options.*setting = "auto";
    Status without = check(options);
    if (without) return {{key, std::move(status)}};
    status = std::move(without);  // where several are wrong, of the last of them
  }
  return {{"exchange.codec", status}};
}

Faults find_exchange_faults(const Options& recipe) {
  const auto not_for = [](const char* key, const std::string& why) -> Faults {
    return {{key, Status::fail(ErrorCode::kUnsupported, why)}};
  };
  const std::string shared = sharers(recipe);
  const bool levels = recipe.integer("exchange.inside") != 1;
  const std::string& codec = recipe.text("exchange.codec");
  if (is_auto(codec) && (is_local(recipe) || !shared.empty()))
    return not_for("exchange.codec",
                   is_local(recipe)
                       ? "auto chooses codecs for gradients of each step, and local methods send "
                         "weights now and then; name a codec"
                       : "auto predicts no " + shared + " exchange gradients apart; name a codec");
  if (is_auto(codec))
    if (Status status = parse_auto(codec).status(); !status)
      return {{"exchange.codec", std::move(status)}};
  if (is_local(recipe)) {
    if (levels)
      return not_for("exchange.inside",
                     "groups of workers are not for local methods, whose workers exchange weights "
                     "now and then");
    if (recipe.text("exchange.combine") != "mean")
      return not_for("exchange.combine",
                     "rules that combine gradients are not for local methods, whose workers "
                     "exchange weights now and then");
    if (!recipe.text("exchange.rules").empty())
      return not_for("exchange.rules",
                     "rules are not for local methods, whose rounds send all weights as one "
                     "vector");
    return find_round_faults(recipe);
  }
  if (levels && !shared.empty())
    return not_for("exchange.inside",
                   "groups of workers are not for " + shared + " exchange gradients apart");
  if (!shared.empty() && recipe.text("exchange.combine") != "mean")
    return not_for("exchange.combine", "rules that combine whole gradients are not for " + shared +
                                           " exchange gradients apart");
  if (Status named = check_exchange({.combine = recipe.text("exchange.combine")}); !named)
    return {{"exchange.combine", std::move(named)}};
  if (Status status = parse_rules(recipe.text("exchange.rules")).status(); !status)
    return {{"exchange.rules", std::move(status)}};
  const ExchangeOptions options = plain_exchange_options(recipe);
  if (!options.rules.empty() && !shared.empty())
    return not_for("exchange.rules",
                   "rules are not for " + shared + " have some of the tensors each");
  ExchangeOptions own = options;
  own.rules.clear();
  Status status = check_exchange(own);
  if (status) {
    if (Status ruled = check_exchange(options); !ruled)
      return {{"exchange.rules", std::move(ruled)}};
    Status place = momentum_plan(recipe).status();
    if (place) place = first_moment_plan(recipe).status();
    if (place) return {};
    return {{"exchange.momentum", std::move(place)}};
  }
  ExchangeOptions by_mean = own;
  by_mean.combine = "mean";
  if (check_exchange(by_mean)) return {{"exchange.combine", std::move(status)}};
  ExchangeOptions one_level = own;
  one_level.inside = 1;
  if (check_exchange(one_level)) return {{"exchange.inside", std::move(status)}};
  ExchangeOptions plain = own;
  plain.method = "auto";
  return {{check_exchange(plain) ? "exchange.method" : "exchange.codec", std::move(status)}};
}

// Second moments of ranks' own gradients.
Faults find_second_moment_faults(const Options& recipe) {
  const std::string& form = recipe.text("optimizer.second_moment");
  const auto no = [&](const std::string& why) {
    return refuse("optimizer.second_moment", form + " is " + why);
  };
  if (form != "mean" && recipe.text("optimizer.name") != "adam")
    return no("for optimizer.name = adam");
  if (!second_moments_of_ranks(recipe)) return {};
  if (is_local(recipe))
    return no("not for workers that step by themselves and send weights (sync.method)");
  if (const std::string shared = sharers(recipe); !shared.empty())
    return no("not for " + shared + " have a part of the gradient");
  if (recipe.flag("run.elastic")) return no("not for workers that come and go (run.elastic)");
  if (recipe.text("exchange.combine") != "mean")
    return no("for exchange.combine = mean, as it is an average of all ranks");
  if (recipe.text("exchange.flush") != "off") return no("for exchange.flush = off");
  if (!find_exchange_faults(recipe).empty()) return {};
  if (recipe.number("optimizer.beta1") != 0 && first_moment_plan(recipe).value())
    return no("for sparse codecs beside which adam has no first moment, or optimizer.beta1 = 0");
  return {};
}

// What find_exchange_faults finds is not said twice.
Faults find_flush_faults(const Options& recipe) {
  if (recipe.text("exchange.flush") == "off") return {};
  if (is_local(recipe))
    return refuse("exchange.flush",
                  "is of gradients; workers that step by themselves exchange weights");
  if (recipe.integer("pipeline.stages") > 0)
    return refuse("exchange.flush", "is not for pipelines, whose boundaries send activations");
  if (recipe.integer("tensor.ranks") > 0)
    return refuse("exchange.flush", "is not for tensor.ranks, whose ranks sum activations");
  if (!find_exchange_faults(recipe).empty()) return {};
  Status status = check_flush(exchange_options(recipe));
  if (status) return {};
  return {{"exchange.flush", std::move(status)}};
}

Faults find_attack_faults(const Options& recipe) {
  const std::string& attack = recipe.text("run.attack");
  if (attack.empty()) return {};
  if (is_local(recipe))
    return refuse("run.attack", "is on gradients; workers that step by themselves send weights");
  if (const std::string shared = sharers(recipe); !shared.empty())
    return refuse("run.attack", "is not for " + shared + " have a part of the gradient");
  Status status = check_attack(attack);
  if (status) return {};
  return {{"run.attack", std::move(status)}};
}

Faults find_checkpoint_faults(const Options& recipe) {
  Status status = check_small_options(recipe);
  if (status && recipe.text("checkpoint.compress") != "exact" &&
      recipe.integer("data.hold_out") == 0)
    status = Status::fail(ErrorCode::kBadOption,
                          "needs data.hold_out, samples on which its tolerance is measured");
  if (status) return {};
  return {{"checkpoint.compress", std::move(status)}};
}

// What a group of other workers cannot go on with.
Faults find_elastic_faults(const Options& recipe) {
  if (!recipe.flag("run.elastic")) {
    if (recipe.integer("run.replacements") == 0) return {};
    return refuse("run.replacements", "needs run.elastic = true");
  }
  const auto no = [](const std::string& why) {
    return Faults{{"run.elastic", Status::fail(ErrorCode::kUnsupported, why)}};
  };
  if (is_local(recipe))
    return no(
        "is for data-parallel training; sync.method = leader, asynchronous and with a "
        "patience, goes on without lost workers in its own way");
  if (const std::string shared = sharers(recipe); !shared.empty())
    return no("is not for " + shared + " cannot do without each other: " + sharing_key(recipe));
  if (recipe.integer("exchange.inside") != 1)
    return no("is not for groups of workers, whose sizes are fixed: exchange.inside");
  if (recipe.text("exchange.combine") != "mean")
    return no("is for means; rules tolerate lost workers themselves: exchange.combine");
  if (is_auto(recipe.text("exchange.codec")))
    return no("needs a codec by name, as auto has measured other workers: exchange.codec");
  auto rules = parse_rules(recipe.text("exchange.rules"));
  bool by_library = recipe.text("exchange.method") == "library";
  if (rules)
    for (const TensorRule& rule : rules.value())
      by_library = by_library || rule.method == "library";
  if (by_library)
    return no("cannot stop a sum of MPI's or gloo's that waits for a lost worker: exchange.method");
  if (recipe.text("exchange.flush") != "off") return no("cannot be combined with exchange.flush");
  if (recipe.text("checkpoint.compress") != "exact")
    return no(
        "needs exact checkpoints, as rank 0 alone keeps what it shrinks: checkpoint.compress");
  if (!recipe.text("data.shards").empty())
    return no("cannot be combined with data.shards: the samples of a lost worker would be missing");
  if (!recipe.text("run.attack").empty() || !recipe.numbers("run.slow").empty())
    return no("cannot be combined with studies of certain ranks: run.attack, run.slow");
  if (recipe.integer("run.record_every") > 0)
    return no("cannot be combined with run.record_every, of worker 0 alone");
  return {};
}

Faults find_device_faults(const Options& recipe) {
  const std::string& device = recipe.text("run.device");
  if (Status status = check_run_device(device); !status) return {{"run.device", std::move(status)}};
  if (device != "cpu" && recipe.integer("pipeline.stages") > 0)
    return refuse("run.device",
                  "pipelines run on the processor; use cpu, or leave pipeline.stages out");
  if (device != "cpu" && recipe.integer("tensor.ranks") > 0)
    return refuse(
        "run.device",
        "ranks that share layers compute on the processor; use cpu, or leave tensor.ranks "
        "out");
  if (device != "cpu" && recipe.flag("run.elastic"))
    return refuse("run.device", "workers that come and go compute on the processor: run.elastic");
  return {};
}

// A check, and the sections whose keys it reads.
struct Check {
  std::vector<std::string_view> sections;
  Faults (*find)(const Options& recipe);
};

const std::vector<Check>& checks() {
  static const std::vector<Check> all = {
      {{"data"}, find_data_faults},
      {{"model"}, find_model_faults},
      {{"optimizer"}, find_optimizer_faults},
      {{"pipeline", "sync", "train", "data", "model"}, find_pipeline_faults},
      {{"tensor", "pipeline", "sync", "train", "optimizer", "model"}, find_tensor_faults},
      {{"exchange", "sync", "optimizer", "pipeline", "tensor"}, find_exchange_faults},
      {{"exchange", "sync", "optimizer", "pipeline", "tensor"}, find_flush_faults},
      {{"exchange", "sync", "optimizer", "pipeline", "tensor", "run"}, find_second_moment_faults},
      {{"sync", "data"}, find_judge_faults},
      {{"data", "pipeline", "tensor", "run", "train"}, find_shard_faults},
      {{"run", "sync", "pipeline", "tensor"}, find_attack_faults},
      {{"checkpoint", "sync", "data"}, find_checkpoint_faults},
      {{"run", "sync", "pipeline", "tensor", "exchange", "data", "checkpoint"},
       find_elastic_faults},
      {{"run", "pipeline", "tensor"}, find_device_faults},
  };
  return all;
}

}  // namespace

DataRequest data_request(const Options& recipe, const std::string& folder) {
  const auto count = [&](const char* key) { return static_cast<uint64_t>(recipe.integer(key)); };
  return {.name = recipe.text("data.name"),
          .folder = folder,
          .hold_out = count("data.hold_out"),
          .train_samples = count("data.train_samples"),
          .test_samples = count("data.test_samples"),
          .augment = recipe.flag("data.augment"),
          .crop = recipe.integer("data.crop"),
          .sequence = recipe.integer("data.sequence"),
          .wrong_labels = recipe.number("data.wrong_labels"),
          .wrong_labels_seed = count("data.wrong_labels_seed")};
}

ModelOptions model_options(const Options& recipe) {
  return {.name = recipe.text("model.name"),
          .width = recipe.integer("model.width"),
          .hidden = recipe.integer("model.hidden"),
          .layers = recipe.integer("model.layers"),
          .embedding = recipe.integer("model.embedding"),
          .activation = recipe.text("model.activation"),
          .dropout = recipe.number("model.dropout"),
          .seed = static_cast<uint64_t>(recipe.integer("train.seed"))};
}

ExchangeOptions exchange_options(const Options& recipe) {
  ExchangeOptions options = plain_exchange_options(recipe);
  MomentumPlan plan = momentum_plan(recipe).value();
  options.feedback = std::move(plan.feedback);
  options.rules = std::move(plan.rules);
  return options;
}

Momentum own_momentum(const Options& recipe) {
  if (recipe.text("optimizer.name") != "sgd") return {};
  return {.momentum = recipe.number("optimizer.momentum"),
          .dampening = recipe.number("optimizer.dampening"),
          .nesterov = recipe.flag("optimizer.nesterov")};
}

bool momentum_in_memory(const Options& recipe) { return momentum_plan(recipe).value().in_memory; }

bool first_moment_acts(const Options& recipe) { return first_moment_plan(recipe).value(); }

bool second_moments_of_ranks(const Options& recipe) {
  return recipe.text("optimizer.second_moment") == "ranks";
}

bool freezes_second_moment(const Options& recipe) {
  return recipe.text("optimizer.second_moment") == "frozen";
}

bool clips_own(const Options& recipe) {
  const std::string& of = recipe.text("clip.of");
  if (recipe.number("clip.norm") == 0 || of == "mean" || is_local(recipe)) return false;
  return of == "own" || momentum_in_memory(recipe) || second_moments_of_ranks(recipe);
}

SynchroniserOptions synchroniser_options(const Options& recipe) {
  SynchroniserOptions options;
  options.method = recipe.text("sync.method");
  options.codec = recipe.text("exchange.codec");
  options.feedback = recipe.text("exchange.feedback");
  options.exchange = recipe.text("exchange.method");
  options.momentum = recipe.text("exchange.momentum");
  options.seed = static_cast<uint64_t>(recipe.integer("train.seed"));
  options.max_skipped = static_cast<int>(recipe.integer("exchange.max_skipped"));
  return options;
}

void set_deadline(Group& group, const Options& recipe) {
  const auto milliseconds = recipe.number("exchange.deadline_seconds") * 1000;
  group.set_deadline(std::chrono::milliseconds(static_cast<int64_t>(milliseconds)));
}

std::vector<RecipeFault> find_faults(const Options& recipe, std::span<const std::string> unsure) {
  Faults all;
  for (const Check& check : checks()) {
    if (std::ranges::find_first_of(check.sections, unsure) != check.sections.end()) continue;
    std::ranges::move(check.find(recipe), std::back_inserter(all));
  }
  return all;
}

}  // namespace thinwire
