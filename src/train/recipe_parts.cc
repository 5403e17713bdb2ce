// Reading sections, and finding what is wrong with them together.
// SPDX-License-Identifier: Apache-2.0
#include "train/recipe_parts.h"

#include <chrono>
#include <functional>
#include <utility>
#include <vector>

#include "thinwire/trainer.h"
#include "train/label_shards.h"
#include "train/pipeline/pipeline_options.h"

namespace thinwire {
namespace {

// The error that a check ends in, if it does.
std::optional<RecipeFault> fault_of(std::string key, const std::function<void()>& check) {
  try {
    check();
    return std::nullopt;
  } catch (const Error& error) {
    return RecipeFault{std::move(key), Status::fail(error.code(), error.what())};
  }
}

// One setting at a time, so that the key to blame is known.
std::optional<RecipeFault> find_data_fault(const DataRequest& all) {
  const std::pair<const char*, std::function<void(DataRequest&)>> settings[] = {
      {"data.augment", [&](DataRequest& one) { one.augment = all.augment; }},
      {"data.crop", [&](DataRequest& one) { one.crop = all.crop; }},
      {"data.sequence", [&](DataRequest& one) { one.sequence = all.sequence; }}};
  for (const auto& [key, set] : settings) {
    DataRequest one{.name = all.name};
    set(one);
    if (auto fault = fault_of(key, [&] { check_data_request(one); })) return fault;
  }
  return std::nullopt;
}

std::optional<RecipeFault> find_model_fault(const ModelOptions& all) {
  const std::pair<const char*, std::function<void(ModelOptions&)>> settings[] = {
      {"model.width", [&](ModelOptions& one) { one.width = all.width; }},
      {"model.hidden", [&](ModelOptions& one) { one.hidden = all.hidden; }},
      {"model.layers", [&](ModelOptions& one) { one.layers = all.layers; }},
      {"model.embedding", [&](ModelOptions& one) { one.embedding = all.embedding; }},
      {"model.activation", [&](ModelOptions& one) { one.activation = all.activation; }},
      {"model.dropout", [&](ModelOptions& one) { one.dropout = all.dropout; }}};
  for (const auto& [key, set] : settings) {
    ModelOptions one{.name = all.name};
    set(one);
    if (auto fault = fault_of(key, [&] { check_model(one); })) return fault;
  }
  return std::nullopt;
}

std::optional<RecipeFault> find_judge_fault(const Options& recipe) {
  if (recipe.integer("sync.judge_samples") == 0) return std::nullopt;
  const std::string& method = recipe.text("sync.method");
  const bool leader = method.substr(0, method.find(':')) == "leader";
  if (leader && recipe.integer("data.hold_out") > 0) return std::nullopt;
  return RecipeFault{"sync.judge_samples",
                     Status::fail(ErrorCode::kBadOption,
                                  leader ? "needs data.hold_out" : "only leader chooses workers")};
}

// Workers with samples or a speed of their own.
std::optional<RecipeFault> find_shard_fault(const Options& recipe) {
  const auto refuse = [](std::string key, const char* why) {
    return RecipeFault{std::move(key), Status::fail(ErrorCode::kBadOption, why)};
  };
  const std::string& shards = recipe.text("data.shards");
  const bool pipeline = recipe.integer("pipeline.stages") > 0;
  if (pipeline && !recipe.numbers("run.slow").empty())
    return refuse("run.slow", "stages of a pipeline are not slowed");
  if (shards.empty()) return std::nullopt;
  if (pipeline) return refuse("data.shards", "stages of a pipeline see the same samples");
  if (recipe.flag("train.fixed_batches"))
    return refuse("data.shards", "batches of shards are not fixed: train.fixed_batches");
  return fault_of("data.shards", [&] { shard_alpha(shards); });
}

std::optional<RecipeFault> find_exchange_fault(const Options& recipe) {
  const std::string& method = recipe.text("sync.method");
  if (!method.empty()) {
    if (Status status = check_synchroniser_text(method); !status)
      return RecipeFault{"sync.method", std::move(status)};
    return std::nullopt;
  }
  const ExchangeOptions options = exchange_options(recipe);
  Status status = check_exchange(options);
  if (status) return std::nullopt;
  ExchangeOptions plain = options;
  plain.method = "auto";
  return RecipeFault{check_exchange(plain) ? "exchange.method" : "exchange.codec",
                     std::move(status)};
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
          .sequence = recipe.integer("data.sequence")};
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
  ExchangeOptions options;
  options.codec = recipe.text("exchange.codec");
  options.feedback = recipe.text("exchange.feedback");
  options.method = recipe.text("exchange.method");
  const std::string& grouping = recipe.text("exchange.grouping");
  if (grouping == "tensor") options.grouping = Grouping::kTensor;
  if (grouping == "model") options.grouping = Grouping::kModel;
  options.bucket_bytes = static_cast<size_t>(recipe.integer("exchange.bucket_kb")) * 1024;
  options.seed = static_cast<uint64_t>(recipe.integer("train.seed"));
  options.max_skipped = static_cast<int>(recipe.integer("exchange.max_skipped"));
  return options;
}

SynchroniserOptions synchroniser_options(const Options& recipe) {
  SynchroniserOptions options;
  options.method = recipe.text("sync.method");
  options.codec = recipe.text("exchange.codec");
  options.feedback = recipe.text("exchange.feedback");
  options.exchange = recipe.text("exchange.method");
  options.seed = static_cast<uint64_t>(recipe.integer("train.seed"));
  options.max_skipped = static_cast<int>(recipe.integer("exchange.max_skipped"));
  return options;
}

void set_deadline(Group& group, const Options& recipe) {
  const auto milliseconds = recipe.number("exchange.deadline_seconds") * 1000;
  group.set_deadline(std::chrono::milliseconds(static_cast<int64_t>(milliseconds)));
}

std::optional<RecipeFault> find_fault(const Options& recipe) {
  if (auto fault = find_data_fault(data_request(recipe, ""))) return fault;
  if (auto fault = find_model_fault(model_options(recipe))) return fault;
  if (recipe.flag("optimizer.nesterov") && recipe.text("optimizer.name") == "sgd" &&
      recipe.number("optimizer.momentum") == 0)
    return RecipeFault{
        "optimizer.nesterov",
        Status::fail(ErrorCode::kBadOption, "needs optimizer.momentum greater than 0")};
  if (auto fault = find_pipeline_fault(recipe)) return fault;
  if (auto fault = find_exchange_fault(recipe)) return fault;
  if (auto fault = find_judge_fault(recipe)) return fault;
  return find_shard_fault(recipe);
}

}  // namespace thinwire
