// measure_influence: reads a run's checkpoints, adds up their products, and puts the strongest
// samples into lists.
// SPDX-License-Identifier: Apache-2.0
#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <numeric>

#include "thinwire/influence.h"
#include "thinwire/trainer.h"
#include "train/checkpoint.h"
#include "train/data/data_sets.h"
#include "train/durable_file.h"
#include "train/influence_sums.h"
#include "train/models/models.h"
#include "train/named_tensors.h"
#include "train/pipeline/autoencoder.h"
#include "train/recipe_parts.h"
#include "train/safetensors.h"
#include "train/sample_picture.h"
#include "train/saved_run.h"
#include "train/schedule.h"
#include "train/tensor/tensor_autoencoders.h"
#include "train/timetable.h"

namespace thinwire {
namespace {

namespace fs = std::filesystem;

constexpr double kLookedAt[] = {0.05, 0.1, 0.2};

[[noreturn]] void refuse(const std::string& why, ErrorCode code = ErrorCode::kBadOption) {
  throw Error(code, why);
}

// `wanted` of them at equal distances, the newest among them; 0: all.
std::vector<fs::path> chosen(const fs::path& run, std::vector<fs::path> all, uint64_t wanted) {
  if (wanted == 0) return all;
  if (wanted > all.size())
    refuse(
        run.string() + " has " + std::to_string(all.size()) + " checkpoint" +
        (all.size() == 1 ? "" : "s") + " and not " + std::to_string(wanted) +
        ": a run keeps as many as checkpoint.keep says, one every train.checkpoint_every epochs");
  std::vector<fs::path> some;
  for (uint64_t i = 1; i <= wanted; ++i) some.push_back(all[i * all.size() / wanted - 1]);
  return some;
}

const Dataset& part_of(const DataSplits& data, SamplePart part) {
  if (part == SamplePart::kTraining) return *data.train;
  if (part == SamplePart::kTest) return *data.test;
  if (!data.held_out)
    refuse("the run holds no samples out (data.hold_out = 0); choose test or training samples");
  return *data.held_out;
}

void check_labelled(const std::string& run, const Options& recipe) {
  const auto labelled = labelled_data_sets();
  const std::string& data = recipe.text("data.name");
  if (std::find(labelled.begin(), labelled.end(), data) == labelled.end())
    refuse(run + ": its model " + recipe.text("model.name") + " predicts the tokens of " + data +
               ", and influence is of samples with one class each; known: runs on " +
               joined_names(labelled),
           ErrorCode::kUnsupported);
}

void check_indices(const InfluenceRequest& request, uint64_t size) {
  for (const uint64_t index : request.of)
    if (index >= size)
      refuse("there is no " + std::string(to_string(request.part)) + " sample " +
             std::to_string(index) + ": the run has " + std::to_string(size) + ", 0 to " +
             std::to_string(size - 1));
}

// Descending by value; of equal values the lower index first.
std::vector<uint64_t> ranked(const double* values, uint64_t count, double sign) {
  std::vector<uint64_t> order(count);
  std::iota(order.begin(), order.end(), uint64_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](uint64_t a, uint64_t b) { return sign * values[a] > sign * values[b]; });
  return order;
}

// Makes the entries of lists.
class SampleLister {
 public:
  SampleLister(const InfluenceRequest& request, const DataSplits& data, const InfluenceSums& sums)
      : request_(request), data_(data), sums_(sums) {}

  InfluenceSample training(uint64_t index, double influence) const {
    InfluenceSample sample = entry(*data_.train, index, sums_.training(), index);
    sample.influence = influence;
    return with_truth(std::move(sample));
  }

  // The sample at `place` of those that were asked for.
  InfluenceOf of(uint64_t place) const {
    InfluenceOf one;
    const bool own = request_.part == SamplePart::kTraining;
    const uint64_t index = request_.of[place];
    one.sample = entry(part_of(data_, request_.part), index, sums_.of(), place);
    if (own) one.sample = with_truth(std::move(one.sample));
    const auto training_samples = data_.train->size();
    const double* row = sums_.products().const_data_ptr<double>() + place * training_samples;
    for (const double sign : {1.0, -1.0}) {
      auto& list = sign > 0 ? one.proponents : one.opponents;
      for (const uint64_t other : ranked(row, training_samples, sign)) {
        if (list.size() == request_.most || sign * row[other] <= 0) break;
        if (!own || other != index) list.push_back(training(other, row[other]));
      }
    }
    return one;
  }

 private:
  InfluenceSample entry(const Dataset& from, uint64_t index, const SampleSums& sums,
                        uint64_t place) const {
    InfluenceSample sample{.index = index,
                           .influence = sums.self.const_data_ptr<double>()[place],
                           .label = sums.labels.const_data_ptr<int64_t>()[place],
                           .predicted = sums.predicted.const_data_ptr<int64_t>()[place],
                           .probability = sums.probability.const_data_ptr<double>()[place]};
    if (request_.pictures)
      sample.picture = picture_of(from.fetch({&index, 1}, {}).inputs[0], data_.pixels);
    return sample;
  }

  InfluenceSample with_truth(InfluenceSample sample) const {
    if (data_.wrong.shift(sample.index) != 0)
      sample.true_label = data_.wrong.true_label(sample.index, sample.label);
    return sample;
  }

  const InfluenceRequest& request_;
  const DataSplits& data_;
  const InfluenceSums& sums_;
};

WrongLabelsFound count_found(const WrongLabels& wrong, const std::vector<uint64_t>& ranking) {
  WrongLabelsFound found;
  std::vector<uint64_t> among(ranking.size() + 1);  // the first so many
  for (size_t i = 0; i < ranking.size(); ++i)
    among[i + 1] = among[i] + (wrong.shift(ranking[i]) != 0 ? 1 : 0);
  found.planted = among.back();
  for (const double share : kLookedAt) {
    const auto first = static_cast<size_t>(std::round(share * static_cast<double>(ranking.size())));
    found.shares.push_back({.looked_at = share,
                            .found = static_cast<double>(among[first]) /
                                     static_cast<double>(std::max<uint64_t>(found.planted, 1))});
  }
  return found;
}

void write_scores(const InfluenceRequest& request, const DataSplits& data,
                  const InfluenceSums& sums) {
  torch::Tensor truth = sums.training().labels.clone();
  auto* label = truth.mutable_data_ptr<int64_t>();
  for (uint64_t i = 0; i < data.train->size(); ++i, ++label)
    *label = data.wrong.true_label(i, *label);
  StateArrays arrays;
  const auto add = [&](const char* name, const torch::Tensor& values) {
    arrays.push_back(to_state({name, values}, OnResize::kCopy));
  };
  add("self", sums.training().self);
  add("labels", sums.training().labels);
  add("true_labels", truth);
  add("influence", sums.products());
  const std::vector<int64_t> of(request.of.begin(), request.of.end());
  add("of", torch::tensor(of, torch::kInt64));
  replace_durably(request.scores,
                  write_safetensors({.metadata = {{"format", "pt"}}, .arrays = arrays}));
}

}  // namespace

std::string_view to_string(SamplePart part) noexcept {
  return part == SamplePart::kTest      ? "test"
         : part == SamplePart::kHeldOut ? "held-out"
                                        : "training";
}

InfluenceReport measure_influence(const InfluenceRequest& request) try {
  if (!request.scores.empty()) check_output(request.scores, Writing::kReplaces);
  const fs::path run = without_slash(request.run);
  const auto folders = chosen(run, find_checkpoints(run), request.checkpoints);
  const Options recipe = recipe_of(load_model(folders.back()), folders.back());
  check_labelled(run.string(), recipe);
  const DataSplits data = make_data_set(data_request(recipe, request.data));
  const Dataset& others = part_of(data, request.part);
  check_indices(request, others.size());
  const Task task = with_tensor_autoencoders(
      recipe,
      with_autoencoders(recipe, make_model(model_options(recipe), data.shape), *data.train));

  InfluenceReport report{.data = recipe.text("data.name"),
                         .model = recipe.text("model.name"),
                         .part = request.part,
                         .training_samples = data.train->size()};
  InfluenceSums sums(*data.train, others, request.of,
                     static_cast<uint64_t>(recipe.integer("train.evaluate_batch")));
  for (const fs::path& folder : folders) {
    if (request.note)
      request.note("checkpoint " + std::to_string(report.checkpoints.size() + 1) + " of " +
                   std::to_string(folders.size()) + ": " + folder.filename().string());
    const Checkpoint checkpoint = load_model(folder);
    const Options own = recipe_of(checkpoint, folder);  // a resumed run may have another schedule
    show_weights(checkpoint.model, folder.string(), recipe, *task.module);
    const uint64_t last = checkpoint.step - std::min<uint64_t>(checkpoint.step, 1);
    const double rate = learning_rate(own, make_timetable(own, data.train->size()), last);
    try {
      sums.add(task, rate);
    } catch (const Error& error) {
      refuse(folder.string() + ": " + error.what(), error.code());
    }
    report.checkpoints.push_back({.name = folder.filename().string(),
                                  .step = checkpoint.step,
                                  .learning_rate = rate,
                                  .small = !checkpoint.small_from.empty()});
  }

  const SampleLister lister(request, data, sums);
  for (uint64_t place = 0; place < request.of.size(); ++place)
    report.of.push_back(lister.of(place));
  const double* self = sums.training().self.const_data_ptr<double>();
  const auto ranking = ranked(self, data.train->size(), 1);
  for (const uint64_t index : ranking) {
    if (report.ranking.size() == request.most) break;
    report.ranking.push_back(lister.training(index, self[index]));
  }
  if (data.wrong.share > 0) report.wrong = count_found(data.wrong, ranking);
  if (!request.scores.empty()) write_scores(request, data, sums);
  return report;
} catch (const fs::filesystem_error& error) {
  throw Error(ErrorCode::kIo, error.what());
}

}  // namespace thinwire
