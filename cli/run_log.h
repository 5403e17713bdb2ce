// Reads what `thinwire train` printed into a file: its progress and its last line.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <ios>
#include <string>
#include <utility>

namespace thinwire::cli {

// The log of one run. Several runs may append to one file.
class RunLog {
 public:
  // Of the run that begins now: what the file holds already is of others.
  static RunLog beginning(std::filesystem::path path);

  // Of all that the file holds.
  explicit RunLog(std::filesystem::path path) : path_(std::move(path)) {}

  const std::filesystem::path& path() const { return path_; }

  // The last line of progress without its margin, "step 101/1000  epoch 1.01  loss 0.5000"; empty
  // before the first. Notes and warnings are none.
  std::string progress() const;

  // What the run complained of in its last line; empty where it did not.
  std::string complaint() const;

  // The last line, whatever it is.
  std::string last_line() const;

 private:
  template <typename Wanted>
  std::string last_line(const Wanted& wanted) const;

  std::filesystem::path path_;
  std::streamoff begin_ = 0;
};

}  // namespace thinwire::cli
