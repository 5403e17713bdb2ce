// The keys of the table pipeline of a recipe.
// SPDX-License-Identifier: Apache-2.0
#include "train/recipe_tables.h"

namespace thinwire {

std::vector<OptionInfo> pipeline_keys() {
  using enum OptionType;
  return {
      {.name = "pipeline.stages",
       .type = kInteger,
       .fallback = "0",
       .min = 0,
       .max = 1024,
       .help = "cut the network into so many stages, one worker each; with a multiple of so many "
               "workers, several pipelines share each batch; 0: no pipeline"},
      {.name = "pipeline.cut",
       .type = kText,
       .fallback = "parameters",
       .help = "parameters, time: so that no stage has, or takes, more than it must; or the last "
               "layer of each stage but the last: group1_block2, group2_block2"},
      {.name = "pipeline.order",
       .type = kChoice,
       .fallback = "1f1b",
       .choices = {"1f1b", "fill-drain"},
       .help = "backward passes as soon as there can be one, or after all forward passes (GPipe)"},
      {.name = "pipeline.schedule",
       .type = kChoice,
       .fallback = "synchronous",
       .choices = {"synchronous", "decoupled"},
       .help = "synchronous: stages wait for each other, in pipeline.order; decoupled: they do so "
               "in serial epochs, and between these train on auxiliary variables of each sample"},
      {.name = "pipeline.penalty",
       .type = kNumber,
       .fallback = "0.001",
       .min = 1e-9,
       .max = 1e9,
       .help = "decoupled: beta, the weight of half the squared distance between a sample's "
               "activation and its auxiliary variable"},
      {.name = "pipeline.auxiliary_rate",
       .type = kNumber,
       .fallback = "1",
       .min = 1e-3,
       .max = 1,
       .help = "decoupled: how far an auxiliary variable goes at each visit; 1: to where the "
               "gradients of loss and penalty cancel"},
      {.name = "pipeline.serial_every",
       .type = kInteger,
       .fallback = "0",
       .min = 0,
       .max = 1e9,
       .unit = "epochs",
       .help = "decoupled: period of serial epochs, which are synchronous and set auxiliary "
               "variables to activations; 0: the first epoch alone"},
      {.name = "pipeline.forward",
       .type = kText,
       .fallback = "fp32",
       .help = "codec of activations; one for all boundaries, or one for each with / between"},
      {.name = "pipeline.forward_memory",
       .type = kText,
       .fallback = "none",
       .help = "none, ef, efmixed:density=, ef21 or aqsgd: docs/pipeline.md; likewise"},
      {.name = "pipeline.backward",
       .type = kText,
       .fallback = "fp32",
       .help = "codec of activations' gradients; likewise"},
      {.name = "pipeline.backward_memory",
       .type = kText,
       .fallback = "none",
       .help = "none, ef, efmixed:density= or ef21; likewise. aqsgd is for activations"},
      {.name = "pipeline.autoencoder",
       .type = kText,
       .fallback = "none",
       .help =
           "a trained encoder in front of each boundary and a decoder behind it: the values that "
           "are left of each position's features (32), or how many times fewer (4x); likewise"},
      {.name = "pipeline.boundaries",
       .type = kInteger,
       .fallback = "0",
       .min = 0,
       .max = 1024,
       .help =
           "boundaries that are compressed, counted from the back; the others send fp32; 0: all"},
      {.name = "pipeline.streams",
       .type = kChoice,
       .fallback = "auto",
       .choices = {"auto", "batch", "sample"},
       .help = "what is compressed as one vector; auto: each sample for sparse codecs, else the "
               "micro-batch"},
      {.name = "pipeline.shared_positions",
       .type = kFlag,
       .fallback = "false",
       .help = "gradients travel only at the positions that their activations kept"},
      {.name = "pipeline.warmup",
       .type = kNumber,
       .fallback = "0",
       .min = 0,
       .max = 1e9,
       .unit = "epochs",
       .help = "time in which nothing is compressed, and aqsgd's caches are filled"},
      {.name = "pipeline.warmup_steps",
       .type = kInteger,
       .fallback = "0",
       .min = 0,
       .max = 1e15,
       .unit = "steps",
       .help = "the same in steps, in the place of pipeline.warmup"},
      {.name = "pipeline.norm_samples",
       .type = kInteger,
       .fallback = "0",
       .min = 0,
       .max = 1e15,
       .unit = "samples",
       .help = "training samples that batch norm is measured on anew, with compression off, for "
               "tests with compression off and for the saved model; 0: they have the statistics of "
               "training"},
      {.name = "pipeline.cache_budget_mb",
       .type = kNumber,
       .fallback = "0",
       .min = 0,
       .max = 1e9,
       .unit = "MB",
       .help = "aqsgd, decoupled: memory of each end's cache, the rest lies in a file; 0: all in "
               "memory"},
      {.name = "pipeline.spill_folder",
       .type = kText,
       .fallback = "",
       .help = "aqsgd, decoupled: folder of that file; empty: the system's for temporary files"},
      {.name = "pipeline.save_caches",
       .type = kFlag,
       .fallback = "true",
       .help = "aqsgd, decoupled: caches in checkpoints; without, a resumed run begins with first "
               "visits"},
      {.name = "pipeline.augmented_ids",
       .type = kFlag,
       .fallback = "false",
       .help = "aqsgd: allow augmentation and dropout, which make another activation of an id; "
               "decoupled: dropout"}};
}

}  // namespace thinwire
