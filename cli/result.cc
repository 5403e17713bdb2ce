// Writes results and warnings of a run as text.
// SPDX-License-Identifier: Apache-2.0
#include "cli/result.h"

#include <fmt/format.h>

#include <cmath>

#include "cli/text.h"
#include "thinwire/auto_codec.h"
#include "thinwire/exchange.h"

namespace thinwire::cli {
namespace {

std::string bytes_per_step(double bytes) {
  return with_thousands(static_cast<uint64_t>(std::llround(bytes)));
}

}  // namespace

std::string warn_about(const Recipe& recipe) {
  const auto whole = [&](const char* key) { return recipe.options.integer(key); };
  if (whole("train.batch") < whole("run.workers"))
    return fmt::format("batches of {} for {} workers: some have no samples in a step",
                       whole("train.batch"), whole("run.workers"));
  if (recipe.options.text("exchange.feedback") != "none") return "";
  const std::string& codec = recipe.options.text("exchange.codec");
  auto codecs = scheduled_codecs(auto_stand_in({.codec = codec}).codec);
  for (const NamedCodec& named : codecs.value()) {
    const CodecInfo& info = named.codec->info();
    if (!info.unbiased && !info.lossless)
      return fmt::format("{} is biased and feedback is none: what it leaves out is lost",
                         info.name);
  }
  return "";
}

std::string describe_result(const RunSummary& summary, const std::string& out,
                            const Terminal& terminal) {
  std::string text;
  const auto line = [&](std::string_view what, const std::string& value) {
    text += fmt::format("  {} {}\n", styled(terminal, Style::kFaint, fmt::format("{:<13}", what)),
                        value);
  };
  text +=
      styled(terminal, Style::kBold,
             fmt::format("{}: {} steps, {} samples in {}\n",
                         summary.finished ? "done" : "stopped early", with_thousands(summary.steps),
                         with_thousands(summary.samples), duration(summary.seconds)));
  if (summary.finished)
    line("test error", fmt::format("{} (best {})", percent(summary.final_test_error),
                                   percent(summary.best_test_error)));
  if (summary.final_compressed_test_error)
    line("compressed", percent(*summary.final_compressed_test_error) +
                           " test error with compression at the boundaries");
  if (summary.final_hold_out_error)
    line("held out", percent(*summary.final_hold_out_error) + " error");
  if (summary.flush && summary.flush->gradient_norm > 0)
    line("owed",
         fmt::format(
             "{:.2f} of a gradient's norm at the end; test error {} before it was sent, {} after",
             summary.flush->owed_norm / summary.flush->gradient_norm,
             percent(summary.flush->before.error), percent(summary.flush->after.error)));
  const bool sends = summary.sent_bytes_per_step > 0;  // not before the first round
  if (summary.world_size > 1) {
    line("bytes", fmt::format("{} sent per step and rank, where dense fp32 sends {}",
                              bytes_per_step(summary.sent_bytes_per_step),
                              bytes_per_step(summary.dense_bytes_per_step)));
    if (static_cast<double>(summary.peak_sent_bytes) >= 2 * summary.sent_bytes_per_step)
      line("peak",
           fmt::format("{} in the step that sent most", with_thousands(summary.peak_sent_bytes)));
    if (summary.inside_bytes_per_step > 0)
      line("levels", fmt::format("{} of these inside groups, {} between groups",
                                 bytes_per_step(summary.inside_bytes_per_step),
                                 bytes_per_step(summary.between_bytes_per_step)));
    if (sends) line("wire ratio", ratio(summary.wire_ratio));
  }
  if (sends || summary.world_size == 1) line("codec ratio", ratio(summary.codec_ratio));
  if (summary.achieved_over_target > 0)
    line("density", fmt::format("{:.2f} of its target", summary.achieved_over_target));
  if (summary.skipped_steps > 0) line("skipped", with_thousands(summary.skipped_steps) + " steps");
  if (!out.empty()) line("files", out);
  return text;
}

}  // namespace thinwire::cli
