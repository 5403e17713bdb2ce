// Reads the section `pipeline` of a recipe, and finds its mistakes.
// SPDX-License-Identifier: Apache-2.0
#include "train/pipeline/pipeline_options.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <string_view>
#include <utility>

#include "thinwire/codec.h"
#include "thinwire/exchange.h"
#include "train/pipeline/autoencoder.h"

namespace thinwire {
namespace {

// "a / b": {"a", "b"}.
std::vector<std::string> list_of(std::string_view text) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find('/', begin), text.size());
    std::string_view part = text.substr(begin, end - begin);
    while (part.starts_with(' ')) part.remove_prefix(1);
    while (part.ends_with(' ')) part.remove_suffix(1);
    parts.emplace_back(part);
    begin = end + 1;
  }
  return parts;
}

// In any part of the run.
bool is_sparse(const std::string& codec) {
  auto codecs = scheduled_codecs(codec);
  return codecs && std::any_of(codecs.value().begin(), codecs.value().end(),
                               [](const NamedCodec& one) { return one.codec->info().sparse; });
}

RecipeFault fault(std::string key, std::string message) {
  return {std::move(key), Status::fail(ErrorCode::kBadOption, std::move(message))};
}

// What belongs to one boundary each, and what it is at a boundary that is not compressed.
struct BoundaryList {
  const char* key;
  std::vector<std::string> PipelineOptions::*list;
  const char* plain;
};
constexpr BoundaryList kLists[] = {
    {"pipeline.forward", &PipelineOptions::forward, "fp32"},
    {"pipeline.forward_memory", &PipelineOptions::forward_memory, "none"},
    {"pipeline.backward", &PipelineOptions::backward, "fp32"},
    {"pipeline.backward_memory", &PipelineOptions::backward_memory, "none"},
    {"pipeline.autoencoder", &PipelineOptions::autoencoder, "none"}};

// Faults in the order they were found, of each key the first.
class FaultList {
 public:
  void add(std::optional<RecipeFault> found) {
    if (!found) return;
    for (const RecipeFault& one : faults_)
      if (one.key == found->key) return;
    faults_.push_back(*std::move(found));
  }
  bool empty() const { return faults_.empty(); }
  std::vector<RecipeFault> take() { return std::move(faults_); }

 private:
  std::vector<RecipeFault> faults_;
};

void find_list_faults(const Options& recipe, const PipelineOptions& options, FaultList& faults) {
  if (options.boundaries >= options.stages)
    faults.add(fault("pipeline.boundaries",
                     std::to_string(options.boundaries) + " boundaries, where " +
                         std::to_string(options.stages) + " stages have " +
                         std::to_string(options.stages - 1) + "; 0 stands for all"));
  for (const auto& [key, list, plain] : kLists)
    if (options.boundaries > 0 && list_of(recipe.text(key)).size() != 1)
      faults.add(fault("pipeline.boundaries",
                       std::string(key) + " has a part for each boundary already; give one for all "
                                          "that are compressed, or leave this out"));
  for (const auto& [key, list, plain] : kLists)
    if ((options.*list).size() != 1 && (options.*list).size() + 1 != options.stages)
      faults.add(fault(key, "has " + std::to_string((options.*list).size()) + " parts where " +
                                std::to_string(options.stages) + " stages have " +
                                std::to_string(options.stages - 1) +
                                " boundaries; give one for all, or one for each"));
}

// Of one direction over one cut.
std::optional<RecipeFault> find_boundary_fault(const PipelineOptions& options, size_t cut,
                                               bool backward) {
  const std::string key = backward ? "pipeline.backward" : "pipeline.forward";
  BoundarySpec spec = boundary_options(options, cut, backward);
  spec.sample_shape = {64};
  spec.cache_budget = 0;
  if (options.shared_positions) {
    if (!backward && !is_sparse(spec.codec))
      return fault("pipeline.shared_positions",
                   "codec " + spec.codec + " of pipeline.forward keeps no positions");
    (backward ? spec.at_positions : spec.note_positions) = make_kept_positions();
  }
  const Status status = make_boundary_sender(spec).status();
  if (status) return std::nullopt;
  // The codec alone tells whose fault it is.
  const bool codec = !scheduled_codecs(spec.codec);
  return RecipeFault{codec || spec.memory == "none" ? key : key + "_memory", status};
}

// The first memory of a list that is so, if any. Texts that name none are a fault of their own.
std::optional<NamedBoundaryMemory> find_memory(const std::vector<std::string>& list,
                                               const auto& is) {
  for (const std::string& text : list) {
    Result<NamedBoundaryMemory> found = find_boundary_memory(text);
    if (found && is(found.value())) return std::move(found).value();
  }
  return std::nullopt;
}

bool by_id(const NamedBoundaryMemory& memory) { return memory.entry->by_id; }

// The two lists of memories.
constexpr std::pair<const char*, std::vector<std::string> PipelineOptions::*> kMemories[] = {
    {"pipeline.forward_memory", &PipelineOptions::forward_memory},
    {"pipeline.backward_memory", &PipelineOptions::backward_memory}};

// Memories whose vectors have the shape of a step.
void find_batch_faults(const Options& recipe, const PipelineOptions& options, FaultList& faults) {
  for (const auto& [key, list] : kMemories) {
    if (!find_memory(options.*list, [](const auto& one) { return one.entry->whole_batches; }))
      continue;
    if (!recipe.flag("train.drop_last"))
      faults.add(fault(key, "takes whole batches only: set train.drop_last"));
    if (recipe.integer("train.batch") % recipe.integer("train.micro_batches") != 0)
      faults.add(fault(key,
                       "takes whole batches only: train.batch must be a multiple of "
                       "train.micro_batches"));
  }
}

// Memories of each sample's activation.
std::optional<RecipeFault> find_identity_fault(const Options& recipe,
                                               const PipelineOptions& options) {
  const auto memory = find_memory(options.forward_memory, by_id);
  if (!memory) return std::nullopt;
  const auto batches = find_memory(options.forward_memory, [](const auto& one) {
    return one.entry->fixed_batches && one.entry->fixed_batches(one.options);
  });
  if (batches && !recipe.flag("train.fixed_batches"))
    return fault("pipeline.forward_memory",
                 "key=batch meets the same batches in every epoch: set train.fixed_batches");
  const char* changing = recipe.flag("data.augment")          ? "data.augment"
                         : recipe.number("model.dropout") > 0 ? "model.dropout"
                                                              : nullptr;
  if (changing == nullptr || recipe.flag("pipeline.augmented_ids")) return std::nullopt;
  return fault("pipeline.forward_memory",
               std::string(memory->entry->name) + " remembers each sample's activation, and " +
                   changing +
                   " makes another one at every visit, so that changes are no smaller than "
                   "tensors; set pipeline.augmented_ids to do so all the same");
}

// Decoupled stages use a sample's activation of one visit at the next.
std::optional<RecipeFault> find_decoupling_fault(const Options& recipe,
                                                 const PipelineOptions& options) {
  if (!options.decoupling) return std::nullopt;
  if (options.stages == 0)
    return fault("pipeline.schedule", "there are no stages to decouple; set pipeline.stages");
  if (options.shared_positions)
    return fault("pipeline.schedule",
                 "decoupled stages send gradients before they know which positions of the "
                 "activations were kept; choose pipeline.shared_positions = false, or "
                 "pipeline.schedule = synchronous");
  if (recipe.number("model.dropout") > 0 && !recipe.flag("pipeline.augmented_ids"))
    return fault("pipeline.schedule",
                 "decoupled stages remember each sample's activation, and model.dropout makes "
                 "another one at every visit; choose model.dropout = 0, or pipeline.schedule = "
                 "synchronous, or set pipeline.augmented_ids to do so all the same");
  return std::nullopt;
}

}  // namespace

const std::string& of_cut(const std::vector<std::string>& list, size_t cut) {
  return list.size() == 1 ? list.front() : list.at(cut);
}

PipelineOptions pipeline_options(const Options& recipe) {
  PipelineOptions options;
  options.stages = static_cast<size_t>(recipe.integer("pipeline.stages"));
  options.cut = recipe.text("pipeline.cut");
  options.order = recipe.text("pipeline.order") == "1f1b" ? PipelineOrder::kOneFOneB
                                                          : PipelineOrder::kFillDrain;
  if (recipe.text("pipeline.schedule") == "decoupled")
    options.decoupling = {
        .penalty = recipe.number("pipeline.penalty"),
        .rate = recipe.number("pipeline.auxiliary_rate"),
        .serial_every = static_cast<uint64_t>(recipe.integer("pipeline.serial_every"))};
  options.boundaries = static_cast<size_t>(recipe.integer("pipeline.boundaries"));
  for (const auto& [key, list, plain] : kLists) {
    std::vector<std::string> parts = list_of(recipe.text(key));
    if (options.boundaries > 0 && options.boundaries < options.stages && parts.size() == 1) {
      const std::string one = parts.front();
      parts.assign(options.stages - 1, plain);
      std::fill_n(parts.rbegin(), options.boundaries, one);
    }
    options.*list = std::move(parts);
  }
  options.streams = recipe.text("pipeline.streams");
  options.shared_positions = recipe.flag("pipeline.shared_positions");
  options.warmup = recipe.number("pipeline.warmup");
  options.warmup_steps = static_cast<uint64_t>(recipe.integer("pipeline.warmup_steps"));
  options.cache_budget =
      static_cast<size_t>(std::ceil(recipe.number("pipeline.cache_budget_mb") * 0x1p20));
  options.spill_folder = recipe.text("pipeline.spill_folder");
  if (options.spill_folder.empty())
    options.spill_folder = std::filesystem::temp_directory_path().string();
  options.save_caches = recipe.flag("pipeline.save_caches");
  return options;
}

BoundarySpec boundary_options(const PipelineOptions& options, size_t cut, bool backward) {
  BoundarySpec spec;
  spec.codec = of_cut(backward ? options.backward : options.forward, cut);
  spec.memory = of_cut(backward ? options.backward_memory : options.forward_memory, cut);
  spec.per_sample =
      options.streams == "sample" || (options.streams == "auto" && is_sparse(spec.codec));
  spec.stream = static_cast<uint32_t>(2 * cut + (backward ? 1 : 0));
  if (!backward) {
    spec.cache_budget = options.cache_budget;
    spec.spill_folder = options.spill_folder;
  }
  return spec;
}

std::vector<RecipeFault> find_pipeline_faults(const Options& recipe) {
  const PipelineOptions options = pipeline_options(recipe);
  FaultList faults;
  const auto find_autoencoder_fault = [&] {
    if (Status status = check_autoencoders(options); !status)
      faults.add(RecipeFault{"pipeline.autoencoder", std::move(status)});
  };
  if (options.stages == 0) {
    find_autoencoder_fault();
    faults.add(find_decoupling_fault(recipe, options));
    return faults.take();
  }
  if (!recipe.text("sync.method").empty()) {
    faults.add(
        fault("pipeline.stages", "workers that step by themselves (sync.method) have no stages"));
    return faults.take();
  }
  find_list_faults(recipe, options, faults);
  if (faults.empty()) {  // every cut has its part of each list
    for (size_t cut = 0; cut + 1 < options.stages; ++cut)
      for (const bool backward : {false, true})
        faults.add(find_boundary_fault(options, cut, backward));
  }
  find_autoencoder_fault();
  if (options.warmup > 0 && options.warmup_steps > 0)
    faults.add(fault("pipeline.warmup_steps", "pipeline.warmup is given too; give one of them"));
  find_batch_faults(recipe, options, faults);
  if (const auto memory = find_memory(options.backward_memory, by_id))
    faults.add(fault("pipeline.backward_memory",
                     std::string(memory->entry->name) +
                         " remembers activations; gradients of a sample change with the weights"));
  faults.add(find_identity_fault(recipe, options));
  faults.add(find_decoupling_fault(recipe, options));
  return faults.take();
}

}  // namespace thinwire
