// Reads what a run needs before its first step, and writes its files until the end.
// SPDX-License-Identifier: Apache-2.0
#include "train/run_files.h"

#include <filesystem>
#include <span>
#include <utility>

#include "thinwire/agreement.h"
#include "thinwire/auto_codec.h"
#include "train/durable_file.h"
#include "train/recipe_text.h"
#include "train/safetensors.h"
#include "train/saved_names.h"

namespace thinwire {
namespace {

std::filesystem::path absolute_folder(const std::string& name) {
  const auto path = std::filesystem::weakly_canonical(std::filesystem::absolute(name));
  return path.has_filename() ? path : path.parent_path();  // without a slash at the end
}

// Whether a run goes on in the folder that it was saved in.
bool continues(const RunPlaces& places) {
  if (places.resume.empty() || places.out.empty()) return false;
  const auto out = absolute_folder(places.out), from = absolute_folder(places.resume);
  return from == out || (is_checkpoint(from) && from.parent_path() == out);
}

// Rank 0's answer on all ranks: others may see the folder under another name, and all must save at
// the same steps.
bool continues(Group& group, const RunPlaces& places) {
  std::byte answer{group.rank() == 0 && continues(places)};
  group.broadcast(std::span(&answer, 1), 0);
  return answer != std::byte{0};
}

// Decisions of this run would take the place of those that it is to follow, and it may end before
// the last of them.
void protect_plan(const std::string& codec, const std::filesystem::path& out) {
  if (!is_auto(codec)) return;
  const std::string plan = parse_auto(codec).value().plan;
  std::error_code absent;
  if (!plan.empty() && std::filesystem::equivalent(plan, out / kDecisionsName, absent))
    throw Error(ErrorCode::kBadOption,
                "exchange.codec: plan " + plan + " is the file to which a run in " + out.string() +
                    " records its decisions; name another folder with --out, or follow a copy of "
                    "the file");
}

}  // namespace

Checkpoint RunFiles::load(Group& group, const std::function<void(const std::string&)>& note) {
  const auto inside = static_cast<int>(recipe_.options.integer("exchange.inside"));
  Checkpoint saved = load_checkpoint(group, places_.resume, inside);
  require_agreement(group, "checkpoint",
                    "step=" + std::to_string(saved.step) +
                        "\nranks=" + std::to_string(saved.world_size) + '\n' + saved.recipe);
  const RecipeChanges changes = compare_recipes(saved.recipe, agreement_text(recipe_));
  if (!changes.forbidden.empty())
    throw AgreedError(ErrorCode::kMismatch,
                      places_.resume + ": belongs to another recipe: " + changes.forbidden.front());
  for (const std::string& change : changes.allowed) note("resumed with " + change);
  continues_ = continues(group, places_);
  if (continues_) others_after_ = saved_at_ = saved.step;  // elsewhere it is yet to be saved
  return saved;
}

void RunFiles::check() {
  const std::filesystem::path out = places_.out;
  check_out(out, continues_);
  protect_plan(recipe_.options.text("exchange.codec"), out);
  if (const int64_t every = recipe_.options.integer("run.record_every"); every > 0)
    recorder_ =
        std::make_unique<SignalRecorder>(out / kSignalsFolder, static_cast<uint64_t>(every));
}

void RunFiles::open(uint64_t step) {
  const std::filesystem::path out = places_.out;
  clear_out(out, continues_);
  remove_unfinished_checkpoints(out);
  const std::string toml = recipe_toml(recipe_);
  replace_durably(out / kRecipeName, std::as_bytes(std::span(toml)));
  // Lines that are there are of another run, unless this one goes on with it.
  open_metrics(continues_ ? step : 0);
}

void RunFiles::open_metrics(uint64_t step) {
  metrics_ = std::make_unique<MetricsFile>(std::filesystem::path(places_.out) / kMetricsName, step,
                                           recipe_.options.flag("run.stream_metrics"),
                                           places_.tensorboard);
  // Another process may go on with the file at any time.
  if (recipe_.options.flag("run.elastic")) metrics_->flush_every_line();
}

void RunFiles::take_over(uint64_t step) {
  if (writes() && metrics_ == nullptr) open_metrics(step);
}

std::filesystem::path RunFiles::save(Group& group, Checkpoint checkpoint) {
  checkpoint.recipe = agreement_text(recipe_);
  checkpoint.others_after = others_after_;
  saved_at_ = checkpoint.step;
  auto folder = save_checkpoint(group, places_.out, checkpoint);
  others_after_.reset();
  return folder;
}

void RunFiles::write_weights(const StateArrays& model) const {
  const auto bytes = write_safetensors({.metadata = {{"format", "pt"}}, .arrays = model});
  replace_durably(std::filesystem::path(places_.out) / kModelName, bytes);
}

void RunFiles::write_decisions(AllowedLoss loss, const std::vector<AutoDecision>& decisions) const {
  const std::string text = record_text(loss, decisions);
  replace_durably(std::filesystem::path(places_.out) / kDecisionsName,
                  std::as_bytes(std::span(text)));
}

void RunFiles::write_summary(const RunSummary& summary, const RunTotals& totals) const {
  thinwire::write_summary(std::filesystem::path(places_.out) / kSummaryName, summary, totals,
                          recipe_);
}

}  // namespace thinwire
