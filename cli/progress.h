// Progress of a run: one live line on a terminal, a plain line now and then elsewhere.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdio>
#include <deque>
#include <string>
#include <string_view>

#include "cli/terminal.h"
#include "thinwire/trainer.h"

namespace thinwire::cli {

// Shows the events of rank 0. Used by one thread; `out` must outlive it.
class Progress {
 public:
  Progress(std::FILE* out, const Terminal& terminal) : out_(out), terminal_(terminal) {}
  ~Progress() { clear(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void step(const StepEvent& event);
  void evaluation(const EvaluationEvent& event);
  void note(std::string_view text);  // yellow on a terminal, with a ! everywhere

  // Takes the live line away.
  void clear();

 private:
  struct Point {
    double seconds = 0;
    uint64_t step = 0;
    uint64_t samples = 0;
  };

  void follow(const StepEvent& event);
  std::string live_line(const StepEvent& event) const;
  std::string plain_line(const StepEvent& event) const;
  std::string rate() const;   // "5,120 samples/s"; these three are empty until they mean something
  std::string saved() const;  // "saved 97.6%"
  std::string time_left(const StepEvent& event) const;
  void say(const std::string& line);

  std::FILE* out_;
  Terminal terminal_;
  bool shown_ = false;          // the live line is on the screen
  double last_drawn_ = -1e300;  // in the run's seconds
  std::string drawn_;           // to draw it again below a line that came in between
  std::deque<Point> window_;    // recent past, for samples/s
  Point first_;                 // for the time left, which counts evaluations too
  double error_ = -1;           // of the latest evaluation
  double dense_bytes_ = 0;
  double sent_bytes_ = 0;
  double loss_ = 0;  // smoothed over some ten steps
  bool any_loss_ = false;
  double run_seconds_ = 0;
};

}  // namespace thinwire::cli
