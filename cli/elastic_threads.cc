// Starts threads, replaces those that fail, and returns what the run came to.
// SPDX-License-Identifier: Apache-2.0
#include "cli/elastic_threads.h"

#include <fmt/format.h>

#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "cli/text.h"
#include "thinwire/members.h"

namespace thinwire::cli {
namespace {

class ElasticThreads {
 public:
  ElasticThreads(int size, const Recipe& recipe, const RunPlaces& places, const RunEvents& events)
      : recipe_(recipe),
        places_(places),
        events_(one_at_a_time(events)),
        place_(size),
        replacements_(recipe.options.integer("run.replacements")) {
    for (int i = 0; i < size; ++i) start();
  }

  RunSummary wait() {
    {
      std::unique_lock lock(mutex_);
      while (running_ > 0) {
        if (to_replace_ > 0) {
          --to_replace_;
          start_now();
          continue;
        }
        changed_.wait(lock);
      }
    }
    for (std::thread& thread : threads_) thread.join();
    if (summary_) return *std::move(summary_);
    throw Error(code_, why_);
  }

 private:
  // Workers are told apart by threads, so that one may still speak when another begins to.
  RunEvents one_at_a_time(const RunEvents& events) {
    RunEvents guarded;
    const auto guard = [this](const auto& call) {
      std::decay_t<decltype(call)> one;
      if (call)
        one = [this, call](const auto&... values) {
          const std::lock_guard lock(speaking_);
          return call(values...);
        };
      return one;
    };
    guarded.step = guard(events.step);
    guarded.evaluation = guard(events.evaluation);
    guarded.note = guard(events.note);
    guarded.stop = guard(events.stop);
    return guarded;
  }

  void start() {
    const std::lock_guard lock(mutex_);
    start_now();
  }

  void start_now() {
    ++running_;
    threads_.emplace_back([this, members = std::shared_ptr<Members>(place_.enter())]() mutable {
      run(*members);
      members.reset();  // before anybody looks whether this thread runs
      const std::lock_guard lock(mutex_);
      --running_;
      changed_.notify_all();
    });
  }

  void run(Members& members) {
    try {
      RunSummary summary = train_recipe(recipe_, places_, members, events_);
      const std::lock_guard lock(mutex_);
      if (!summary_) summary_ = std::move(summary);
    } catch (
        const AgreedError& error) {  // all others have it too, or it is one that could not join
      fail(error.code(), std::string(first_line(error.what())), /*replace=*/false);
    } catch (const Error& error) {
      fail(error.code(), of_worker(members, error.what()), members.rank() >= 0);
    } catch (const std::exception& error) {
      fail(ErrorCode::kContract, of_worker(members, error.what()), members.rank() >= 0);
    }
  }

  static std::string of_worker(const Members& members, const char* what) {
    return fmt::format("rank {}: {}", members.number(), first_line(what));
  }

  void fail(ErrorCode code, std::string why, bool replace) {
    const std::lock_guard lock(mutex_);
    if (why_.empty()) {
      code_ = code;
      why_ = std::move(why);
    }
    if (!replace || summary_ || replacements_ == 0) return;
    --replacements_;
    ++to_replace_;
    changed_.notify_all();
  }

  const Recipe& recipe_;
  const RunPlaces& places_;
  std::mutex speaking_;
  const RunEvents events_;
  MeetingPlace place_;

  std::mutex mutex_;  // guards the rest
  std::condition_variable changed_;
  int64_t replacements_;
  int running_ = 0;
  int to_replace_ = 0;
  std::vector<std::thread> threads_;
  std::optional<RunSummary> summary_;
  ErrorCode code_ = ErrorCode::kContract;
  std::string why_;  // the first one failed
};

}  // namespace

RunSummary train_elastic_threads(int size, const Recipe& recipe, const RunPlaces& places,
                                 const RunEvents& events) {
  return ElasticThreads(size, recipe, places, events).wait();
}

}  // namespace thinwire::cli
