// Measures settings by putting the values that a file would give back into the network.
// SPDX-License-Identifier: Apache-2.0
#include "train/small_checkpoints.h"

#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "core/checksum.h"
#include "shrink/small_chain.h"
#include "train/elapsed_time.h"
#include "train/evaluate.h"

namespace thinwire {
namespace {

// Of fewer values the centres would cost more than they save.
constexpr int64_t kLeastValues = 1024;

// The first samples of a data set.
class FirstSamples final : public Dataset {
 public:
  FirstSamples(const Dataset& all, uint64_t most)
      : all_(all), size_(most == 0 ? all.size() : std::min(most, all.size())) {}
  uint64_t size() const override { return size_; }
  Batch fetch(std::span<const uint64_t> ids, const FetchContext& context) const override {
    return all_.fetch(ids, context);
  }

 private:
  const Dataset& all_;
  uint64_t size_;
};

// Of a tensor in the processor's memory.
std::span<float> values_of(const NamedTensor& tensor) {
  const auto bytes = bytes_of(tensor);
  return {reinterpret_cast<float*>(bytes.data()), bytes.size() / sizeof(float)};
}

// Wherever the tensor is.
void put(std::span<const float> values, const NamedTensor& tensor) {
  const torch::NoGradGuard no_grad;
  const NamedTensor here = on_processor(tensor);
  std::copy(values.begin(), values.end(), values_of(here).begin());
  if (!here.tensor.is_alias_of(tensor.tensor)) tensor.tensor.copy_(here.tensor);
}

bool may_be_clustered(const NamedTensor& parameter) {
  const torch::Tensor& tensor = parameter.tensor;
  if (tensor.scalar_type() != torch::kFloat32 || tensor.dim() < 2 || tensor.numel() < kLeastValues)
    return false;
  const NamedTensor here = on_processor(parameter);
  const auto values = values_of(here);
  return std::all_of(values.begin(), values.end(), [](float v) { return std::isfinite(v); });
}

const Clusters* clusters_in(const SmallModel& model, const std::string& name) {
  for (const SmallArray& array : model)
    if (array.exact.name == name && array.clusters) return &*array.clusters;
  return nullptr;
}

bool is_exact(const Setting& setting) {
  return std::all_of(setting.begin(), setting.end(), [](size_t t) { return t == 0; });
}

}  // namespace

struct SmallCheckpoints::Tensor {
  NamedTensor weight;
  std::vector<float> exact;
  std::optional<Clusters> clusters;  // of what the module has; none: exact
};

SmallCheckpoints::SmallCheckpoints(const SmallOptions& options, const Task& task,
                                   const Dataset& hold_out, uint64_t batch, uint64_t seed)
    : options_(options),
      task_(task),
      hold_out_(hold_out),
      batch_(batch),
      context_{.training = false, .seed = seed, .epoch = 0} {}

SmallCheckpoints::~SmallCheckpoints() = default;

// Parameters alone: buffers are few, and a variance bears no change of sign. A tensor with several
// names (tied weights) stays exact, as each name has values of its own in the file.
void SmallCheckpoints::collect() {
  tensors_.clear();
  std::map<const void*, int> names;
  for (const auto& item : task_.module->named_parameters()) ++names[item.value().data_ptr()];
  for (const auto& item : task_.module->named_parameters()) {
    const NamedTensor weight{item.key(), item.value().detach()};
    if (names[item.value().data_ptr()] > 1 || !may_be_clustered(weight)) continue;
    const NamedTensor here = on_processor(weight);
    const auto values = values_of(here);
    tensors_.push_back(
        {.weight = weight, .exact = {values.begin(), values.end()}, .clusters = std::nullopt});
  }
  shown_.assign(tensors_.size(), 0);
}

void SmallCheckpoints::show(const Setting& setting) {
  for (size_t i = 0; i < tensors_.size(); ++i) {
    Tensor& tensor = tensors_[i];
    if (setting[i] == shown_[i]) continue;
    tensor.clusters.reset();
    if (setting[i] == 0) {
      put(tensor.exact, tensor.weight);
    } else {
      const Clusters* before = clusters_in(model_, tensor.weight.name);
      tensor.clusters = make_clusters(
          tensor.exact, treatments()[setting[i]],
          before != nullptr ? std::span<const float>(before->centres) : std::span<const float>());
      std::vector<float> values(tensor.exact.size());
      read_clusters(*tensor.clusters, values).or_throw();
      put(values, tensor.weight);
    }
    shown_[i] = setting[i];
  }
}

void SmallCheckpoints::show_exact() {
  for (const Tensor& tensor : tensors_) put(tensor.exact, tensor.weight);
}

double SmallCheckpoints::loss(Group& group) {
  const FirstSamples samples(hold_out_, options_.samples);
  return evaluate(group, task_, samples, batch_, context_).loss;
}

// The weights of the module are others until the end of this.
void SmallCheckpoints::choose(Group& group, SmallReport& report) {
  const ElapsedTime time;
  report.exact_loss = loss(group);
  report.loss = report.exact_loss;
  const double most = report.exact_loss + options_.tolerance * std::fabs(report.exact_loss);

  SettingSearch search{.sizes = {},
                       .treatments = treatments().size(),
                       .trials = options_.trials,
                       .start = last_.size() == tensors_.size() ? last_ : Setting{}};
  for (const Tensor& tensor : tensors_) search.sizes.push_back(tensor.exact.size());
  double fitting = report.exact_loss;
  const auto fits = [&](const Setting& setting) {
    show(setting);
    ++report.trials;
    const double measured = loss(group);
    if (!std::isfinite(measured) || measured > most) return false;
    fitting = measured;
    return true;
  };
  // Between searches the last setting is kept while it fits. From all zeros a search would go on by
  // one treatment at a time, so it begins anew.
  const bool due = search.start.empty() || checkpoints_ >= options_.search_every;
  if (due && is_exact(search.start)) search.start.clear();
  Setting setting = search.start;
  if (!std::isfinite(most)) {  // nothing can be compared with it
    setting.assign(tensors_.size(), 0);
    checkpoints_ = options_.search_every;
  } else if (due || !fits(setting)) {
    search.start_fails = !due;
    search.trials -= report.trials;  // the start is one of them
    setting = find_setting(search, fits).setting;
    checkpoints_ = 0;
  }
  ++checkpoints_;
  show(setting);
  if (!is_exact(setting)) report.loss = fitting;  // the last that fitted is the one that was found
  last_ = setting;
  report.seconds = time.seconds();
}

void SmallCheckpoints::shrink(Group& group, Checkpoint& to) {
  const torch::NoGradGuard no_grad;
  collect();
  SmallReport report;
  try {
    choose(group, report);
  } catch (...) {
    show_exact();
    throw;
  }
  show_exact();
  // Rank 0 codes, and the others would wait for its file in vain.
  together(group, [&] { write(group.rank() == 0, to, std::move(report)); });
}

void SmallCheckpoints::write(bool first, Checkpoint& to, SmallReport report) {
  const ElapsedTime time;
  SmallModel model;
  for (const NamedTensor& weight : named_weights(*task_.module)) {
    const auto found = std::find_if(tensors_.begin(), tensors_.end(), [&](const Tensor& tensor) {
      return tensor.weight.name == weight.name;
    });
    SmallArray array{.exact = to_state(weight, OnResize::kCopy)};
    report.exact_bytes += array.exact.data.size();
    if (found != tensors_.end() && found->clusters) {
      array.exact.data.clear();
      array.clusters = std::move(found->clusters);
    }
    model.push_back(std::move(array));
  }
  for (size_t i = 0; i < tensors_.size(); ++i)
    report.treatments.emplace_back(tensors_[i].weight.name, last_[i]);
  tensors_.clear();

  if (first) {
    const bool follows =
        !chain_.empty() && chain_.size() <= options_.deltas && has_chain(last_folder_, chain_);
    SmallFile file =
        write_small_model(model, follows ? &model_ : nullptr, follows ? chain_.back().sum : 0);
    if (file.alone) chain_.clear();
    report.bytes = file.bytes.size();
    report.follows = chain_.size();
    report.seconds += time.seconds();
    SmallSave save{.bytes = std::move(file.bytes),
                   .chain = chain_,
                   .chain_folder = last_folder_,
                   .optimizer = options_.optimizer,
                   .report = std::move(report)};
    chain_.push_back({.name = small_file_name(chain_.size()),
                      .mark = {.bytes = save.bytes.size(), .xxh3 = checksum(save.bytes)},
                      .sum = sum_of_small_model(save.bytes)});
    to.small = std::move(save);
  } else {
    for (SmallArray& array : model)
      if (array.clusters) array.clusters->numbers.clear();
  }
  model_ = std::move(model);
}

}  // namespace thinwire
