// What a world does when the other rank's end of the link is played by the test: receives that
// cannot be posted any more, and a rank that leaves while another still sends.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <future>
#include <mutex>
#include <span>
#include <stdexcept>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <utility>
#include <vector>

#include "comm/c10d/c10d_peer.h"
#include "comm/c10d/parcel.h"
#include "thinwire/c10d.h"

namespace thinwire {
namespace {

using std::chrono::milliseconds;
using Bytes = std::vector<std::byte>;

constexpr const char* kClosed = "connection closed by peer";

// Ends when the test says so.
class PlayedWork final : public c10d::Work {
 public:
  enum class End { kNone, kCame, kAborted, kLost };

  bool wait(milliseconds /*timeout*/) override {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return end_ != End::kNone; });
    if (end_ == End::kLost) throw std::runtime_error(kClosed);
    return end_ == End::kCame;
  }
  void abort() override { end(End::kAborted); }
  void end(End end) {
    const std::lock_guard lock(mutex_);
    end_ = end;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  End end_ = End::kNone;
};

// Rank 0's link to rank 1, whose part the test has. Sends end at once.
class PlayedLink final : public c10d::Backend {
 public:
  PlayedLink() : Backend(0, 2) {}

  const std::string getBackendName() const override { return "played"; }

  c10::intrusive_ptr<c10d::Work> send(std::vector<at::Tensor>& /*tensors*/, int /*to*/,
                                      int /*tag*/) override {
    auto work = c10::make_intrusive<PlayedWork>();
    work->end(PlayedWork::End::kCame);
    return work;
  }

  c10::intrusive_ptr<c10d::Work> recv(std::vector<at::Tensor>& tensors, int /*from*/,
                                      int /*tag*/) override {
    const std::lock_guard lock(mutex_);
    if (severed_) throw std::runtime_error(kClosed);
    posted_.emplace_back(tensors.at(0), c10::make_intrusive<PlayedWork>());
    changed_.notify_all();
    return posted_.back().second;
  }

  // Of the receives that are posted, the first `filled` are yet to get what they wait for; the
  // others fail, and those that are posted from now on.
  void sever(size_t filled) {
    const std::lock_guard lock(mutex_);
    severed_ = true;
    for (; posted_.size() > filled; posted_.pop_back())
      posted_.back().second->end(PlayedWork::End::kLost);
  }

  bool await_posted(size_t count) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(20),
                             [&] { return posted_.size() >= count; });
  }

  // Into the first receive that has got nothing.
  void arrive(std::span<const std::byte> parcel) {
    ASSERT_TRUE(await_posted(1));
    std::unique_lock lock(mutex_);
    const auto [tensor, work] = posted_.front();
    posted_.pop_front();
    lock.unlock();
    ASSERT_LE(parcel.size(), static_cast<size_t>(tensor.nbytes()));
    std::memcpy(tensor.data_ptr(), parcel.data(), parcel.size());
    work->end(PlayedWork::End::kCame);
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool severed_ = false;
  std::deque<std::pair<at::Tensor, c10::intrusive_ptr<PlayedWork>>> posted_;
};

class PlayedRank : public testing::Test {
 protected:
  PlayedRank() {
    processes_->setBackend(c10::DeviceType::CPU, c10d::ProcessGroup::BackendType::CUSTOM, link_);
  }
  ~PlayedRank() override { close_c10d_groups(); }

  static std::vector<Bytes> parcels_of(MessageFields fields, std::span<const std::byte> bytes) {
    std::vector<Bytes> parcels;
    Bytes memory(kParcel);
    ParcelWriter writer(memory);
    const auto full = [&] {
      const auto parcel = writer.finish();
      parcels.emplace_back(parcel.begin(), parcel.end());
      writer = ParcelWriter(memory);
    };
    fields.size = bytes.size();
    writer.begin(fields);
    while (!(bytes = bytes.subspan(writer.add(bytes))).empty()) full();
    full();
    return parcels;
  }

  // Rank 1 leaves, having received nothing.
  static Bytes end_of_rank() {
    const Bytes none_received(sizeof(uint64_t));
    return parcels_of({.context = C10dWorld::kEveryGroup, .kind = kEnd}, none_received).at(0);
  }

  const c10::intrusive_ptr<PlayedLink> link_ = c10::make_intrusive<PlayedLink>();
  const c10::intrusive_ptr<c10d::ProcessGroup> processes_ =
      c10::make_intrusive<c10d::ProcessGroup>(0, 2);
};

TEST_F(PlayedRank, WhatCameIsReadAfterReceivesCannotBePosted) {
  const auto group = make_c10d_group(processes_);
  Bytes sent(3 * kParcel);
  for (size_t i = 0; i < sent.size(); ++i) sent[i] = static_cast<std::byte>(i * 31 >> 3);
  const auto parcels = parcels_of({.context = C10dWorld::kFirstContext, .tag = 5}, sent);
  ASSERT_EQ(parcels.size(), 4);
  ASSERT_TRUE(link_->await_posted(parcels.size()));
  link_->sever(parcels.size());
  for (const Bytes& parcel : parcels) link_->arrive(parcel);

  Bytes received(sent.size());
  group->wait(group->receive(received, 1, 5));
  EXPECT_EQ(received, sent);
  try {
    group->wait(group->receive(received, 1, 5));
    ADD_FAILURE() << "nothing else was sent";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kPeerLost);
    EXPECT_THAT(error.what(), testing::HasSubstr(kClosed));
  }
}

TEST_F(PlayedRank, LeavingReadsOnUntilTheOtherHasLeft) {
  make_c10d_group(processes_).reset();
  auto closed = std::async(std::launch::async, close_c10d_groups);
  const Bytes unread(1000);
  for (const Bytes& parcel : parcels_of({.context = C10dWorld::kFirstContext, .tag = 5}, unread))
    link_->arrive(parcel);
  ASSERT_EQ(closed.wait_for(milliseconds(300)), std::future_status::timeout);
  link_->arrive(end_of_rank());
  EXPECT_EQ(closed.wait_for(milliseconds(1200)), std::future_status::ready);  // not after 2 s
}

TEST_F(PlayedRank, LeavingDoesNotWaitForEverForARankThatStays) {
  make_c10d_group(processes_).reset();
  auto closed = std::async(std::launch::async, close_c10d_groups);
  EXPECT_EQ(closed.wait_for(std::chrono::seconds(20)), std::future_status::ready);
}

}  // namespace
}  // namespace thinwire
