// Progress: the text of progress lines on terminals and in files.
// SPDX-License-Identifier: Apache-2.0
#include "cli/progress.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "cli/text.h"

namespace thinwire::cli {
namespace {

constexpr double kRedraw = 0.1;     // seconds between two looks of the live line
constexpr double kPlainLine = 10;   // seconds between two plain lines
constexpr double kWindow = 10;      // seconds that rates are taken over
constexpr double kSmoothing = 0.1;  // weight of the newest loss
constexpr size_t kLeastBar = 4;     // with it all but samples/s fits 80 columns
constexpr size_t kMostBar = 20;
constexpr size_t kAroundBar = 10;  // margin, percentage, and room for ^C
constexpr std::string_view kFull[] = {"=", "\u2501"};
constexpr std::string_view kEmpty[] = {".", "\u2500"};

}  // namespace

void Progress::follow(const StepEvent& event) {
  run_seconds_ = event.seconds;
  if (std::isfinite(event.loss)) {
    loss_ = any_loss_ ? loss_ + kSmoothing * (event.loss - loss_) : event.loss;
    any_loss_ = true;
  }
  if (event.exchange != nullptr) {
    dense_bytes_ += static_cast<double>(event.exchange->dense_bytes);
    sent_bytes_ += static_cast<double>(event.exchange->sent_bytes);
  }
  if (window_.empty()) first_ = {event.seconds, event.step, event.samples};
  window_.push_back({event.seconds, event.step, event.samples});
  while (window_.size() > 2 && window_[1].seconds < event.seconds - kWindow) window_.pop_front();
}

void Progress::step(const StepEvent& event) {
  follow(event);
  const double pause = terminal_.live ? kRedraw : kPlainLine;
  if (last_drawn_ < 0) {  // the first step is slow and says nothing about the rate
    last_drawn_ = event.seconds;
    if (!terminal_.live) return;
  } else if (event.seconds < last_drawn_ + pause) {
    return;
  }
  last_drawn_ = event.seconds;
  if (!terminal_.live) return say(plain_line(event));
  terminal_.width = look_at(out_).width;
  drawn_ = live_line(event);
  fmt::print(out_, "\r\033[K{}", drawn_);
  std::fflush(out_);
  shown_ = true;
}

void Progress::evaluation(const EvaluationEvent& event) {
  error_ = event.error;
  const std::string held_out =
      event.hold_out_error ? fmt::format("held out {:<8} ", percent(*event.hold_out_error)) : "";
  const std::string compressed =
      event.compressed_error ? fmt::format("compressed {:<8} ", percent(*event.compressed_error))
                             : "";
  say(fmt::format("epoch {:<5} test error {:<8} {}{}loss {:<8.4f} {}", short_number(event.epoch),
                  percent(event.error), compressed, held_out, event.loss, duration(run_seconds_)));
}

void Progress::note(std::string_view text) {
  say(styled(terminal_, Style::kYellow, fmt::format("! {}", text)));
}

void Progress::clear() {
  if (shown_) fmt::print(out_, "\r\033[K");
  std::fflush(out_);
  shown_ = false;
}

// A line that stays; the live one moves below it.
void Progress::say(const std::string& line) {
  const bool again = shown_;
  clear();
  fmt::print(out_, "  {}\n", line);
  if (again) fmt::print(out_, "{}", drawn_);
  shown_ = again;
  std::fflush(out_);
}

std::string Progress::plain_line(const StepEvent& event) const {
  std::string text = fmt::format("step {}/{}  epoch {:.2f}  loss {:.4f}", event.step, event.steps,
                                 event.epoch, loss_);
  for (const std::string& part : {saved(), rate(), time_left(event)})
    if (!part.empty()) text += "  " + part;
  return text;
}

// Fields in order of reading; where there is no room, those of highest rank go first. The bar takes
// what they leave.
std::string Progress::live_line(const StepEvent& event) const {
  struct Field {
    int rank;
    std::string text;
  };
  std::vector<Field> fields = {
      {2, fmt::format("epoch {:.2f}", event.epoch)},
      {0, fmt::format("loss {:.3f}", loss_)},
      {1, error_ < 0 ? "" : fmt::format("accuracy {:.1f}%", 100 * (1 - error_))},
      {4, saved()},
      {5, rate()},
      {3, time_left(event)}};
  std::erase_if(fields, [](const Field& field) { return field.text.empty(); });
  const auto needed = [&] {
    size_t sum = 0;
    for (const Field& field : fields) sum += 2 + columns(field.text);
    return sum;
  };
  const auto lower = [](const Field& a, const Field& b) { return a.rank < b.rank; };
  const size_t room = static_cast<size_t>(std::max(terminal_.width, 40)) - kAroundBar;
  while (!fields.empty() && needed() + kLeastBar > room)
    fields.erase(std::max_element(fields.begin(), fields.end(), lower));

  const double part =
      static_cast<double>(event.step) / static_cast<double>(std::max<uint64_t>(event.steps, 1));
  const size_t bar = std::min(room - needed(), kMostBar);
  const auto full = static_cast<size_t>(std::clamp(part, 0.0, 1.0) * static_cast<double>(bar));
  std::string text =
      "  " + styled(terminal_, Style::kGreen, repeat(kFull[terminal_.unicode], full));
  text += styled(terminal_, Style::kFaint, repeat(kEmpty[terminal_.unicode], bar - full));
  text += fmt::format(" {:>3.0f}%", std::floor(100 * part));
  for (const Field& field : fields) text += "  " + field.text;
  return text;
}

std::string Progress::rate() const {
  const Point &from = window_.front(), &to = window_.back();
  if (to.seconds <= from.seconds) return "";
  const double samples = static_cast<double>(to.samples - from.samples);
  return with_thousands(
             static_cast<uint64_t>(std::llround(samples / (to.seconds - from.seconds)))) +
         " samples/s";
}

std::string Progress::saved() const {
  if (dense_bytes_ <= 0 || sent_bytes_ >= dense_bytes_) return "";
  return fmt::format("saved {:.1f}%", 100 * (1 - sent_bytes_ / dense_bytes_));
}

std::string Progress::time_left(const StepEvent& event) const {
  if (event.step <= first_.step || event.seconds <= first_.seconds) return "";
  const double per_step =
      (event.seconds - first_.seconds) / static_cast<double>(event.step - first_.step);
  return duration(per_step * static_cast<double>(event.steps - std::min(event.step, event.steps))) +
         " left";
}

}  // namespace thinwire::cli
