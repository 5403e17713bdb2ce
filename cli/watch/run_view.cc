// Formats a followed run: how far it is, its loss as a sparkline, where the time of a step goes,
// its bytes.
// SPDX-License-Identifier: Apache-2.0
#include "cli/watch/run_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "cli/text.h"
#include "cli/watch/rank_lines.h"

namespace thinwire::cli {
namespace {

constexpr size_t kLeastWidth = 40;  // to which lines are laid out; narrower terminals cut them
constexpr size_t kMostWidth = 100;
constexpr double kSilent = 60;  // seconds without a line that are mentioned

size_t width_of(const Terminal& terminal) {
  return std::clamp(static_cast<size_t>(std::max(terminal.width - 1, 0)), kLeastWidth, kMostWidth);
}

// Means over the recent steps.
struct Means {
  double sent = 0, dense = 0, fetch = 0, compute = 0, wait = 0, update = 0;
  std::optional<double> step;  // from one to the next
  std::optional<double> kept_over_target;
};

Means means_of(const FollowedRun& run) {
  Means means;
  double kept = 0;
  size_t with_target = 0;
  for (const FollowedRun::Step& step : run.recent()) {
    means.sent += step.sent_bytes;
    means.dense += step.dense_bytes;
    means.fetch += step.fetch;
    means.compute += step.compute;
    means.wait += step.wait;
    means.update += step.update;
    kept += step.kept_over_target.value_or(0);
    with_target += step.kept_over_target.has_value();
  }
  const auto count = static_cast<double>(std::max<size_t>(run.recent().size(), 1));
  for (double* sum :
       {&means.sent, &means.dense, &means.fetch, &means.compute, &means.wait, &means.update})
    *sum /= count;
  if (with_target > 0) means.kept_over_target = kept / static_cast<double>(with_target);
  means.step = run.seconds_per_step();
  return means;
}

std::string errors_of(const FollowedRun& run) {
  if (!run.error()) return "";
  return fmt::format("error {} (best {})", percent(*run.error()), percent(*run.best_error()));
}

std::string progress_line(const FollowedRun& run, size_t width, const Terminal& terminal) {
  const std::optional<double> done = run.done();
  const std::optional<double> left = run.seconds_left();
  const double silent = run.silent_seconds();
  const std::vector<std::string> fields = {
      done ? fmt::format("{:>3.0f}%", std::floor(100 * *done)) : "",
      silent > kSilent ? fmt::format("nothing written for {}", duration(silent))
      : left           ? duration(*left) + " left"
                       : "",
      fmt::format("step {}", with_thousands(run.steps())),
      fmt::format("epoch {:.2f}", run.recent().back().epoch)};
  const size_t bar_width = done ? 20 : 0;
  const std::string rest = fitted(fields, width - bar_width - 3);
  return "  " + (done ? bar(*done, bar_width, terminal) + " " : "") +
         (silent > kSilent ? styled(terminal, Style::kYellow, rest) : rest);
}

// Where the training thread spends a step.
std::string time_line(const Means& means, size_t width) {
  const double known = means.fetch + means.compute + means.wait + means.update;
  const double other = std::max(0.0, means.step.value_or(known) - known), whole = known + other;
  if (whole <= 0) return "  step";
  const auto share = [&](double part) { return fmt::format("{:.0f}%", 100 * part / whole); };
  return "  step   " + fitted({means.step ? fmt::format("{:.3g} s", *means.step) : "",
                               "compute " + share(means.compute), "wait " + share(means.wait),
                               "update " + share(means.update), "fetch " + share(means.fetch),
                               "other " + share(other)},
                              width - 9);
}

std::string bytes_line(const FollowedRun& run, const Means& means, size_t width) {
  const bool sends = means.sent > 0;
  const std::vector<std::string> fields = {
      sends ? human_bytes(means.sent) + " a step" : "none",
      sends && means.dense > 0 ? "wire ratio " + ratio(means.dense / means.sent) : "",
      means.kept_over_target ? fmt::format("kept/target {:.2f}", *means.kept_over_target) : "",
      run.skipped() > 0 ? with_thousands(run.skipped()) + " steps skipped" : "",
      run.newest().lost > 0 ? with_thousands(run.newest().lost) + " workers lost" : "",
      run.newest().joined > 0 ? with_thousands(run.newest().joined) + " joined" : ""};
  return "  bytes  " + fitted(fields, width - 9);
}

}  // namespace

std::string sparkline(const std::vector<double>& values, size_t width, const Terminal& terminal) {
  static constexpr std::string_view kBlocks[] = {"\u2581", "\u2582", "\u2583", "\u2584",
                                                 "\u2585", "\u2586", "\u2587", "\u2588"};
  static constexpr std::string_view kLetters[] = {"_", ".", "-", "~", "=", "+", "*", "#"};
  if (values.empty() || width == 0) return "";
  std::vector<double> shown;
  const size_t count = std::min(width, values.size());
  for (size_t i = 0; i < count; ++i) {
    const size_t begin = i * values.size() / count, end = (i + 1) * values.size() / count;
    double sum = 0;
    for (size_t k = begin; k < end; ++k) sum += values[k];
    shown.push_back(sum / static_cast<double>(end - begin));
  }
  const auto [least, largest] = std::minmax_element(shown.begin(), shown.end());
  const double range = *largest - *least;
  std::string text;
  for (const double value : shown) {
    const auto height =
        range > 0 ? static_cast<size_t>(std::lround(7 * (value - *least) / range)) : size_t{0};
    text += (terminal.unicode ? kBlocks : kLetters)[height];
  }
  return text;
}

namespace {

std::vector<std::string> all_lines(const FollowedRun& run, const Terminal& terminal) {
  const size_t width = width_of(terminal);
  const std::string name = styled(terminal, Style::kBold, run.name());
  if (run.finished())
    return {fmt::format("{}  {}", name,
                        fitted({"done", with_thousands(run.steps()) + " steps", errors_of(run)},
                               width - std::min(width, columns(run.name()) + 2)))};
  const size_t beside = width - std::min(width, columns(run.name()) + 2);
  const std::string what = fitted({run.method(), run.codec()}, beside);
  std::vector<std::string> lines = {
      fmt::format("{}  {}", name, columns(what) <= beside ? what : "")};
  if (run.recent().empty()) {
    lines.emplace_back("  no step yet");
    return lines;
  }
  const Means means = means_of(run);
  lines.push_back(progress_line(run, width, terminal));
  const std::string loss = fmt::format("{:.4f}", run.losses().empty() ? NAN : run.losses().back());
  const std::string errors = errors_of(run);
  const size_t words = 9 + columns(loss) + 2 + columns(errors) + 2;
  lines.push_back(fmt::format(
      "  loss   {}  {}{}{}", loss,
      sparkline(run.losses(), std::min<size_t>(40, width - std::min(width, words)), terminal),
      errors.empty() ? "" : "  ", errors));
  lines.push_back(time_line(means, width));
  lines.push_back(bytes_line(run, means, width));
  for (std::string& line : more_lines(run, width, terminal)) lines.push_back(std::move(line));
  return lines;
}

}  // namespace

std::vector<std::string> lines_of(const FollowedRun& run, const Terminal& terminal) {
  std::vector<std::string> lines = all_lines(run, terminal);
  // A line that is drawn in two rows would leave one behind when it is drawn again.
  if (terminal.live)
    for (std::string& line : lines)
      line = cut(line, static_cast<size_t>(std::max(terminal.width - 1, 1)));
  return lines;
}

}  // namespace thinwire::cli
