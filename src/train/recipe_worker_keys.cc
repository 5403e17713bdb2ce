// The keys of the tables sync, exchange and run of a recipe: what workers tell each other.
// SPDX-License-Identifier: Apache-2.0
#include "thinwire/grouping.h"
#include "train/recipe_tables.h"

namespace thinwire {

std::vector<OptionInfo> sync_keys() {
  using enum OptionType;
  return {
      {.name = "sync.method",
       .type = kText,
       .fallback = "",
       .help = "local method, by which workers step by themselves and communicate in rounds: "
               "leader:tau=64, average, easgd, diloco, streaming, sparseloco, downpour, parle, "
               "gossip; empty: workers exchange gradients in every step"},
      {.name = "sync.norm_samples",
       .type = kInteger,
       .fallback = "2048",
       .min = 1,
       .max = kMany,
       .unit = "samples",
       .help =
           "training samples that batch norm is measured on anew for the common model of workers"},
      {.name = "sync.judge_samples",
       .type = kInteger,
       .fallback = "0",
       .min = 0,
       .max = kMany,
       .unit = "samples",
       .help = "leader: judge workers in a round by their loss on so many held-out samples; 0: by "
               "their last training losses"}};
}

std::vector<OptionInfo> exchange_keys() {
  using enum OptionType;
  return {
      {.name = "exchange.codec",
       .type = kText,
       .fallback = "fp32",
       .help =
           "name:key=value,key=value; thinwire codecs lists them; auto:loss=none|small|any chooses "
           "by measured steps"},
      {.name = "exchange.feedback",
       .type = kText,
       .fallback = "auto",
       .help = "memory (error feedback); auto: the codec's own, thinwire codecs names it"},
      {.name = "exchange.momentum",
       .type = kChoice,
       .fallback = "auto",
       .choices = {"auto", "memory", "optimizer"},
       .help = "where optimizer.momentum acts: before compression, in the memory, or on the mean; "
               "auto: in the memory of codecs that leave most values for later steps, where adam "
               "then has no first moment"},
      {.name = "exchange.method",
       .type = kChoice,
       .fallback = "auto",
       .choices = {"auto", "dense", "scatter-reduce", "gather", "sparse-reduce", "low-rank",
                   "shared-index", "library"},
       .help = "collective that averages the gradients; auto: gather for sparse codecs, where "
               "sparse-reduce sends less from four workers on"},
      {.name = "exchange.combine",
       .type = kText,
       .fallback = "mean",
       .help = "how the workers' gradients become one: mean, or a robust rule, such as "
               "trimmed_mean:f=1, which tolerates f workers that send wrong gradients; "
               "docs/robust.md"},
      {.name = "exchange.grouping",
       .type = kChoice,
       .fallback = "auto",
       .choices = grouping_choices(),
       .help = "what is compressed as one vector; global: each tensor, and one threshold selects "
               "what is sent of all; auto: as the codec's paper does"},
      {.name = "exchange.inside",
       .type = kInteger,
       .fallback = "1",
       .min = 1,
       .max = 1 << 15,
       .unit = "workers",
       .help = "workers per group, of consecutive ranks, such as those of one machine: they add "
               "gradients uncompressed, and groups exchange their means; 1: no groups"},
      {.name = "exchange.rules",
       .type = kText,
       .fallback = "",
       .help =
           "[[exchange.rules]], each with pattern and codec, perhaps feedback, method, grouping: "
           "tensors whose names fit the first such pattern have these; as one text "
           "\"{*.bias} fp32 {head.*} int8 {method} gather\""},
      {.name = "exchange.flush",
       .type = kChoice,
       .fallback = "off",
       .choices = {"off", "measure", "apply"},
       .help = "at the end, what memories still owe: measure its size and the test error after a "
               "step that sends all of it; apply: also keep that step"},
      {.name = "exchange.bucket_kb",
       .type = kInteger,
       .fallback = "1024",
       .min = 1,
       .max = 1 << 20,
       .unit = "KiB",
       .help = "uncompressed size of the tensors that are sent together"},
      {.name = "exchange.deadline_seconds",
       .type = kNumber,
       .fallback = "60",
       .min = 0.001,
       .max = 1e6,
       .unit = "seconds",
       .help = "longest wait for another worker"},
      {.name = "exchange.max_skipped",
       .type = kInteger,
       .fallback = "5",
       .min = 0,
       .max = 1 << 20,
       .unit = "steps",
       .help = "skipped steps in a row that end the run; 0: never"}};
}

std::vector<OptionInfo> run_keys() {
  using enum OptionType;
  return {
      {.name = "run.workers",
       .type = kInteger,
       .fallback = "2",
       .min = 1,
       .max = 1024,
       .help = "workers on this machine, unless --workers or mpirun says otherwise"},
      {.name = "run.device",
       .type = kText,
       .fallback = "cpu",
       .help = "where workers compute: cpu; cuda, a machine's workers taking its GPUs in turn; or "
               "cuda:1, all on that one"},
      {.name = "run.threads",
       .type = kInteger,
       .fallback = "0",
       .min = 0,
       .max = 1024,
       .help = "threads of each worker's arithmetic and codecs; 0: cores divided by workers"},
      {.name = "run.slow",
       .type = kNumbers,
       .fallback = "",
       .min = 1,
       .max = 1e6,
       .help = "for studies: [1, 4] makes each pass of worker 1 take four times as long"},
      {.name = "run.attack",
       .type = kText,
       .fallback = "",
       .help = "for studies: what the last workers send instead of their gradients, such as "
               "sign_flip:ranks=2, or several, noise:ranks=1 and silence:ranks=1; docs/robust.md"},
      {.name = "run.elastic",
       .type = kFlag,
       .fallback = "false",
       .help =
           "workers may come and go: those that are left go on without one that is lost, and new "
           "ones join at checkpoints; docs/elastic.md"},
      {.name = "run.replacements",
       .type = kInteger,
       .fallback = "0",
       .min = 0,
       .max = 1 << 20,
       .unit = "workers",
       .help = "run.elastic, on threads and not under mpirun: so many lost workers are replaced by "
               "new ones"},
      {.name = "run.record_every",
       .type = kInteger,
       .fallback = "0",
       .min = 0,
       .max = 1 << 30,
       .unit = "steps",
       .help = "out/signals: what worker 0's encoders are given, every that many steps; 0: never"},
      {.name = "run.stream_metrics",
       .type = kFlag,
       .fallback = "false",
       .help = "metrics.jsonl: all counters of every stream at every step"}};
}

}  // namespace thinwire
