// Queues between groups and the threads of a process group: c10d_threads.cc.
// SPDX-License-Identifier: Apache-2.0
#include "comm/c10d/c10d_world.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "comm/c10d/c10d_peer.h"
#include "thinwire/status.h"

namespace thinwire {
namespace {

constexpr size_t kNotice = 256;  // bytes of the reason for a loss

// Worlds by process group, which they keep alive.
std::mutex worlds_mutex;
std::map<c10d::ProcessGroup*, std::shared_ptr<C10dWorld>>& worlds() {
  static auto* const all = new std::map<c10d::ProcessGroup*, std::shared_ptr<C10dWorld>>;
  return *all;
}

}  // namespace

std::shared_ptr<C10dWorld> C10dWorld::of(const c10::intrusive_ptr<c10d::ProcessGroup>& group) {
  const std::lock_guard lock(worlds_mutex);
  auto& world = worlds()[group.get()];
  if (!world) world.reset(new C10dWorld(group));
  return world;
}

void C10dWorld::close_all() noexcept {
  std::map<c10d::ProcessGroup*, std::shared_ptr<C10dWorld>> ended;
  {
    const std::lock_guard lock(worlds_mutex);
    ended.swap(worlds());
  }
  static auto* const stuck =
      new std::vector<std::shared_ptr<C10dWorld>>;  // its threads outlive this
  for (const auto& [group, world] : ended)
    if (!world->close()) stuck->push_back(world);
}

C10dWorld::C10dWorld(c10::intrusive_ptr<c10d::ProcessGroup> group)
    : group_(std::move(group)), rank_(group_->getRank()), size_(group_->getSize()) {
  try {
    (void)group_->getBackend(c10::DeviceType::CPU);
  } catch (const std::exception&) {
    throw Error(ErrorCode::kUnsupported, "c10d: process group '" + group_->getBackendName() +
                                             "' moves no tensors of the processor's memory; start "
                                             "it with backend gloo, or \"cpu:gloo,cuda:nccl\"");
  }
  for (int r = 0; r < size_; ++r) {
    peers_.push_back(r == rank_ ? nullptr : std::make_unique<Peer>());
    if (r != rank_) peers_.back()->rank = r;
  }
  for (const auto& peer : peers_) {
    if (!peer) continue;
    peer->sender = std::thread([this, p = peer.get()] { send_all(*p); });
    peer->receiver = std::thread([this, p = peer.get()] { receive_all(*p); });
  }
}

// Sends what is queued, and an end to every rank, within two seconds. False when a sender waits for a rank
// that does not receive: it cannot be woken, and the process is about to end.
bool C10dWorld::close() noexcept {
  bool ended = false;
  {
    std::unique_lock lock(mutex_);
    for (const auto& peer : peers_) {
      if (!peer) continue;
      auto end = std::make_shared<Outgoing>();
      end->kind = kEnd;
      end->bytes = farewell(*peer, {});
      enqueue(*peer, std::move(end));
    }
    closing_ = true;
    changed_.notify_all();
    ended = changed_.wait_for(lock, std::chrono::seconds(2), [&] {
      return std::all_of(peers_.begin(), peers_.end(),
                         [](const auto& peer) { return !peer || peer->sender_ended; });
    });
    for (const auto& peer : peers_)
      if (peer)
        for (const auto& work : peer->receiving) work->abort();
  }
  for (const auto& peer : peers_) {
    if (!peer) continue;
    peer->receiver.join();
    if (ended)
      peer->sender.join();
    else
      peer->sender.detach();
  }
  return ended;
}

// The bytes of an end or of a notice of loss: how many messages of that rank have come, and why.
Buffer C10dWorld::farewell(const Peer& peer, std::string_view why) {
  Buffer bytes = buffers_.take(sizeof peer.received + why.size());
  std::memcpy(bytes.bytes().data(), &peer.received, sizeof peer.received);
  std::ranges::copy(std::as_bytes(std::span(why)),
                    bytes.bytes().subspan(sizeof peer.received).begin());
  return bytes;
}

Buffer C10dWorld::copy(std::span<const std::byte> bytes) {
  Buffer buffer;
  {
    const std::lock_guard lock(mutex_);
    buffer = buffers_.take(bytes.size());
  }
  std::ranges::copy(bytes, buffer.bytes().begin());
  return buffer;
}

void C10dWorld::enqueue(Peer& peer, std::shared_ptr<Outgoing> message) {
  message->number = peer.queued++;
  peer.outbox.push_back(std::move(message));
}

void C10dWorld::deliver(const Lane& lane, Buffer bytes) {
  const std::lock_guard lock(mutex_);
  inboxes_[lane].messages.push_back(std::move(bytes));
  changed_.notify_all();
}

void C10dWorld::lose(uint64_t context, int rank, std::string why) {
  why = why.substr(0, why.find('\n'));
  const std::lock_guard lock(mutex_);
  if (why.starts_with("rank ")) {  // announced
    if (context == kEveryGroup && lost_to_all_.empty()) lost_to_all_ = why;
  } else {
    why = "rank " + std::to_string(rank) + " is lost: " + why;
  }
  lost_.try_emplace({context, rank}, why);
  changed_.notify_all();
}

std::string C10dWorld::lost(uint64_t context, int rank) {
  const std::lock_guard lock(mutex_);
  if (!lost_to_all_.empty()) return lost_to_all_;
  for (const uint64_t which : {context, kEveryGroup})
    if (const auto found = lost_.find({which, rank}); found != lost_.end()) return found->second;
  return {};
}

std::shared_ptr<const C10dWorld::Outgoing> C10dWorld::send(std::span<const std::byte> bytes,
                                                           uint64_t context, int to, int tag) {
  auto message = std::make_shared<Outgoing>();
  message->context = context;
  message->tag = tag;
  message->bytes = copy(bytes);
  if (to == rank_) {
    message->sent = true;
    deliver({context, to, tag}, std::move(message->bytes));
    return message;
  }
  const std::lock_guard lock(mutex_);
  enqueue(*peers_[static_cast<size_t>(to)], message);
  changed_.notify_all();
  return message;
}

bool C10dWorld::is_sent(const Outgoing& message) {
  const std::lock_guard lock(mutex_);
  return message.sent;
}

uint64_t C10dWorld::next_receive(const Lane& lane) {
  const std::lock_guard lock(mutex_);
  return inboxes_[lane].receives++;
}

std::optional<Buffer> C10dWorld::take(const Lane& lane, uint64_t number) {
  const std::lock_guard lock(mutex_);
  Inbox& inbox = inboxes_[lane];
  if (number < inbox.first || number - inbox.first >= inbox.messages.size()) return std::nullopt;
  auto message = std::exchange(inbox.messages[number - inbox.first], std::nullopt);
  for (; !inbox.messages.empty() && !inbox.messages.front(); ++inbox.first)
    inbox.messages.pop_front();
  return message;
}

void C10dWorld::give(Buffer& buffer) {
  const std::lock_guard lock(mutex_);
  buffers_.give(buffer);
}

void C10dWorld::announce(uint64_t context, std::span<const int> ranks,
                         std::string_view why) noexcept try {
  if (context == kEveryGroup) lose(context, rank_, std::string(why));
  std::vector<std::shared_ptr<Outgoing>> notices;
  std::unique_lock lock(mutex_);
  for (const int r : ranks) {
    if (r == rank_) continue;
    auto notice = std::make_shared<Outgoing>();
    notice->kind = kLoss;
    notice->context = context;
    Peer& peer = *peers_[static_cast<size_t>(r)];
    notice->bytes = farewell(peer, why.substr(0, kNotice));
    enqueue(peer, notice);
    notices.push_back(std::move(notice));
  }
  changed_.notify_all();
  // Whoever announces is about to leave.
  changed_.wait_for(lock, std::chrono::seconds(2), [&] {
    return std::all_of(notices.begin(), notices.end(), [](const auto& n) { return n->sent; });
  });
} catch (...) {
}

uint64_t C10dWorld::new_base() {
  const std::lock_guard lock(mutex_);
  return bases_++;
}

void C10dWorld::await_change(std::chrono::steady_clock::time_point until) {
  std::unique_lock lock(mutex_);
  changed_.wait_until(lock, until);
}

void C10dWorld::sum(std::span<float> values) {
  std::vector<at::Tensor> tensors = {
      at::from_blob(values.data(), {static_cast<int64_t>(values.size())}, at::kFloat)};
  group_->allreduce(tensors)->wait();
}

}  // namespace thinwire
