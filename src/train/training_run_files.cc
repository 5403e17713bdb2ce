// The files of a TrainingRun: checkpoints, metrics, summary.
// SPDX-License-Identifier: Apache-2.0
#include <filesystem>
#include <numeric>
#include <utility>

#include "thinwire/agreement.h"
#include "train/checkpoint.h"
#include "train/durable_file.h"
#include "train/manifest.h"
#include "train/named_tensors.h"
#include "train/optimizer.h"
#include "train/recipe_text.h"
#include "train/training_run.h"

namespace thinwire {
namespace {

std::filesystem::path absolute_folder(const std::string& name) {
  const auto path = std::filesystem::weakly_canonical(std::filesystem::absolute(name));
  return path.has_filename() ? path : path.parent_path();  // without a slash at the end
}

// Whether a run goes on in the folder that it was saved in.
bool continues(const RunPlaces& places) {
  if (places.resume.empty()) return false;
  const auto out = absolute_folder(places.out), from = absolute_folder(places.resume);
  return from == out || from.parent_path() == out;
}

uint64_t sum_over_ranks(Group& group, uint64_t mine) {
  std::vector<uint64_t> all(static_cast<size_t>(group.size()));
  group.all_gather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all)));
  return std::accumulate(all.begin(), all.end(), uint64_t{0});
}

}  // namespace

void TrainingRun::resume() {
  Checkpoint saved = load_checkpoint(group(), places_.resume);
  require_agreement(group(), "checkpoint",
                    "step=" + std::to_string(saved.step) +
                        "\nranks=" + std::to_string(saved.world_size) + '\n' + saved.recipe);
  const RecipeChanges changes = compare_recipes(saved.recipe, agreement_text(recipe_));
  if (!changes.forbidden.empty())
    throw AgreedError(ErrorCode::kMismatch,
                      places_.resume + ": belongs to another recipe: " + changes.forbidden.front());
  for (const std::string& change : changes.allowed) note("resumed with " + change);
  if (pipeline_.stages > 0 && saved.world_size != group().size())
    throw AgreedError(ErrorCode::kMismatch, places_.resume + ": was saved by " +
                                                std::to_string(saved.world_size) +
                                                " workers; a pipeline goes on with as many, not " +
                                                std::to_string(group().size()));

  together(group(), [&] {
    const torch::NoGradGuard no_grad;
    for (const NamedTensor& weight : named_weights(*task_.module))
      if (const Status status = from_state(saved.model, weight); !status)
        throw Error(status.code(), places_.resume + ": model: " + status.message());
    if (const Status status = store_.load(saved.ranks, group().rank(), group().size()); !status)
      throw Error(status.code(), places_.resume + ": " + status.message());
  });
  saved_optimizer_ = std::move(saved.optimizer);
  step_ = saved_at_ = saved.step;
  if (continues(places_)) others_after_ = step_;
  totals_ = saved.totals;
  latest_.error = totals_.last_error;
  latest_.loss = totals_.last_loss;
  if (totals_.last_hold_out_error <= 1) latest_.hold_out_error = totals_.last_hold_out_error;
  if (totals_.last_compressed_error <= 1) {
    latest_.compressed_error = totals_.last_compressed_error;
    latest_.compressed_loss = totals_.last_compressed_loss;
  }
  if (totals_.last_compressed_hold_out_error <= 1)
    latest_.compressed_hold_out_error = totals_.last_compressed_hold_out_error;
  earlier_seconds_ = totals_.seconds;
  note("resumed at step " + std::to_string(step_));
  if (saved.world_size != group().size())
    note("saved by " + std::to_string(saved.world_size) + " ranks, resumed by " +
         std::to_string(group().size()) +
         ": residuals were redistributed; (1/n) times their sum over ranks is unchanged");
}

void TrainingRun::open_files() {
  if (!writes() || !first()) return;
  const std::filesystem::path out = places_.out;
  prepare_out(out, continues(places_));
  const std::string toml = recipe_toml(recipe_);
  replace_durably(out / "recipe.toml", std::as_bytes(std::span(toml)));
  metrics_ = std::make_unique<MetricsFile>(out / "metrics.jsonl", step_,
                                           recipe_.options.flag("run.stream_metrics"));
  if (const int64_t every = recipe_.options.integer("run.record_every"); every > 0)
    recorder_ = std::make_unique<SignalRecorder>(out / "signals", static_cast<uint64_t>(every));
}

void TrainingRun::save() {
  if (!writes() || saved_at_ == step_) return;
  if (metrics_) metrics_->sync();
  totals_.seconds = seconds();
  Checkpoint checkpoint{.step = step_,
                        .world_size = group().size(),
                        .others_after = others_after_,
                        .recipe = agreement_text(recipe_),
                        .totals = totals_,
                        .model = {},
                        .optimizer = {},
                        .ranks = {store_.save()}};
  // For users of the weights: what is common. For resuming, each rank has its own in the store.
  taker_->show_common();
  if (first()) {
    for (const NamedTensor& weight : named_weights(*task_.module))
      checkpoint.model.push_back(to_state(weight, OnResize::kCopy));
    if (!taker_->keeps_optimizer())
      checkpoint.optimizer = save_optimizer(*optimizer_, *task_.module);
  }
  taker_->show_own();
  save_checkpoint(group(), places_.out, checkpoint);
  others_after_.reset();
  saved_at_ = step_;
}

RunSummary TrainingRun::summarise(bool finished) {
  totals_.seconds = seconds();
  RunSummary summary;
  summary.recipe = recipe_.name;
  summary.world_size = whole_.size();
  summary.lost_workers = lost_workers_;
  const std::string& codec = recipe_.options.text("exchange.codec");
  auto codecs = scheduled_codecs(codec);
  summary.codec = codecs.value().size() == 1 ? codecs.value().front().canonical : codec;
  summary.samples = timetable_.samples_before(step_);
  if (local_ != nullptr && local_->asynchronous())
    summary.samples = sum_over_ranks(group(), own_samples_);
  if (taker_->keeps_optimizer()) taker_->show_common();  // what the module is left with
  summary.final_test_error = latest_.error;
  summary.final_test_loss = latest_.loss;
  summary.final_hold_out_error = latest_.hold_out_error;
  summary.final_compressed_test_error = latest_.compressed_error;
  summary.final_compressed_test_loss = latest_.compressed_loss;
  summary.final_compressed_hold_out_error = latest_.compressed_hold_out_error;
  summary.finished = finished;
  // Bytes and times differ between ranks; all return rank 0's.
  const std::string mine = first() ? totals_.to_json() : "";
  const auto texts = group().all_gather_v(std::as_bytes(std::span(mine)));
  const RunTotals totals =
      RunTotals::from_json({reinterpret_cast<const char*>(texts[0].data()), texts[0].size()})
          .value();
  totals.summarise(summary);
  summary.weights_xxh3 = checksum_of(named_weights(*task_.module));
  group().broadcast(std::as_writable_bytes(std::span(&summary.weights_xxh3, 1)), 0);
  if (writes())
    together(group(), [&] {
      if (first())
        write_summary(std::filesystem::path(places_.out) / "summary.json", summary, totals,
                      recipe_);
    });
  return summary;
}

}  // namespace thinwire
