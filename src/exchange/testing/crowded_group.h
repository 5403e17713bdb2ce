// For tests: a group that says how many ranks it has, and cannot send anything to them.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string_view>

#include "thinwire/group.h"

namespace thinwire::testing {

class CrowdedGroup final : public Group {
 public:
  explicit CrowdedGroup(int size) : size_(size) {}

  int rank() const noexcept override { return 0; }
  int size() const noexcept override { return size_; }
  std::unique_ptr<Transfer> send(std::span<const std::byte>, int, int) override { refuse(); }
  std::unique_ptr<Transfer> receive(std::span<std::byte>, int, int) override { refuse(); }
  std::unique_ptr<Group> split(int) override { refuse(); }
  void abort(std::string_view) noexcept override {}
  void library_all_reduce(std::span<float>) override { refuse(); }

 private:
  [[noreturn]] static void refuse() {
    throw Error(ErrorCode::kUnsupported, "crowded group: sends nothing");
  }

  const int size_;
};

}  // namespace thinwire::testing
