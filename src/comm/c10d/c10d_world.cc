// C10dWorld: the queues between groups and the threads of c10d_threads.cc.
// SPDX-License-Identifier: Apache-2.0
#include "comm/c10d/c10d_world.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "comm/c10d/c10d_peer.h"
#include "core/named_thread.h"
#include "thinwire/status.h"

namespace thinwire {
namespace {

constexpr auto kGoodbye = std::chrono::seconds(2);  // for others to hear that this rank leaves

// Worlds by process group, which they keep alive.
std::mutex worlds_mutex;
std::map<c10d::ProcessGroup*, std::shared_ptr<C10dWorld>>& worlds() {
  static auto* const all = new std::map<c10d::ProcessGroup*, std::shared_ptr<C10dWorld>>;
  return *all;
}

}  // namespace

std::shared_ptr<C10dWorld> C10dWorld::of(const c10::intrusive_ptr<c10d::ProcessGroup>& group) {
  const std::lock_guard lock(worlds_mutex);
  if (const auto found = worlds().find(group.get()); found != worlds().end()) return found->second;
  const std::shared_ptr<C10dWorld> world(new C10dWorld(group));
  return worlds()[group.get()] = world;
}

void C10dWorld::close_one(const c10::intrusive_ptr<c10d::ProcessGroup>& group) noexcept {
  std::map<c10d::ProcessGroup*, std::shared_ptr<C10dWorld>> ended;
  {
    const std::lock_guard lock(worlds_mutex);
    if (auto found = worlds().extract(group.get())) ended.insert(std::move(found));
  }
  end(ended);
}

void C10dWorld::close_all() noexcept {
  std::map<c10d::ProcessGroup*, std::shared_ptr<C10dWorld>> ended;
  {
    const std::lock_guard lock(worlds_mutex);
    ended.swap(worlds());
  }
  end(ended);
}

void C10dWorld::end(
    const std::map<c10d::ProcessGroup*, std::shared_ptr<C10dWorld>>& ended) noexcept {
  static auto* const stuck =
      new std::vector<std::shared_ptr<C10dWorld>>;          // its threads outlive this
  for (const auto& [group, world] : ended) world->leave();  // all, before waiting for one
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
    peer->sender = named_thread("tw-send", [this, p = peer.get()] { send_all(*p); });
    peer->receiver = named_thread("tw-receive", [this, p = peer.get()] { receive_all(*p); });
  }
}

// With why, so that a rank which waits for this one learns of the rank that was lost first.
void C10dWorld::leave() noexcept {
  const std::string why = first_loss().substr(0, kNotice);
  for (const auto& peer : peers_)
    if (peer) say_farewell(*peer, kEnd, kEveryGroup, why);
  const std::lock_guard lock(mutex_);
  closing_ = true;
  notify();
}

// Sends what is queued and reads on until the ends of all others have come: a process that goes
// while they still send to it takes with it what they have not read. All that within kGoodbye.
// False when a thread is left that waits for a rank and cannot be woken; the process is about to
// end.
bool C10dWorld::close() noexcept {
  bool all_sent = false;
  {
    std::unique_lock lock(mutex_);
    const auto until = std::chrono::steady_clock::now() + kGoodbye;
    const auto all = [&](bool Peer::*ended) {
      return std::all_of(peers_.begin(), peers_.end(),
                         [&](const auto& peer) { return !peer || (*peer).*ended; });
    };
    all_sent = changed_.wait_until(lock, until, [&] { return all(&Peer::sender_ended); });
    changed_.wait_until(lock, until, [&] { return all(&Peer::receiver_ended); });
    receiving_ = false;
  }
  bool all_ended = all_sent;
  for (const auto& peer : peers_) {
    if (!peer) continue;
    if (stop_receiving(*peer)) {
      peer->receiver.join();
    } else {
      peer->receiver.detach();
      all_ended = false;
    }
    if (all_sent)
      peer->sender.join();
    else
      peer->sender.detach();
  }
  return all_ended;
}

// False when the backend's receives cannot be given up.
bool C10dWorld::stop_receiving(Peer& peer) noexcept {
  const std::lock_guard lock(mutex_);
  if (peer.receiver_ended) return true;
  try {
    for (const Incoming& incoming : peer.posted) incoming.work->abort();
    return true;
  } catch (const std::exception&) {
    return false;
  }
}

// REQUIRES: mutex_ is held.
void C10dWorld::notify() {
  ++changes_;
  changed_.notify_all();
}

// Copies a message into parcels. The sender has those that are full while the next is being filled.
// What nobody sends any more is dropped.
uint64_t C10dWorld::write(Peer& peer, MessageFields fields, std::span<const std::byte> bytes) {
  fields.size = bytes.size();
  const std::lock_guard writing(peer.writing);
  std::unique_lock lock(mutex_);
  const uint64_t number = peer.queued++;
  if (peer.sender_ended) return number;
  Outgoing parcel = std::exchange(peer.open, {});
  lock.unlock();
  const auto begin_next = [&] {
    lock.lock();
    if (!parcel.writer.empty()) peer.full.push_back(std::move(parcel));
    parcel = {};
    parcel.memory = buffers_.take(kParcel);
    notify();
    lock.unlock();
    parcel.writer = ParcelWriter(parcel.memory.bytes());
    parcel.ended = number;
  };
  while (!parcel.writer.begin(fields)) begin_next();
  while (!(bytes = bytes.subspan(parcel.writer.add(bytes))).empty()) begin_next();
  parcel.ended = number + 1;
  lock.lock();
  peer.open = std::move(parcel);
  notify();
  return number;
}

// An end, or a notice of loss: how many messages of that rank have come, and why.
uint64_t C10dWorld::say_farewell(Peer& peer, uint32_t kind, uint64_t context,
                                 std::string_view why) {
  uint64_t received = 0;
  {
    const std::lock_guard lock(mutex_);
    received = peer.received;
  }
  std::string text(sizeof received, '\0');
  std::memcpy(text.data(), &received, sizeof received);
  text += why;
  return write(peer, {.context = context, .kind = kind}, std::as_bytes(std::span(text)));
}

void C10dWorld::deliver(const Lane& lane, Message message) {
  const std::lock_guard lock(mutex_);
  inboxes_[lane].messages.push_back(std::move(message));
  notify();
}

// Of a rank that did not leave by itself; empty if there is none.
std::string C10dWorld::first_loss() {
  const std::lock_guard lock(mutex_);
  return !lost_to_all_.empty() ? lost_to_all_ : first_loss_;
}

void C10dWorld::lose(uint64_t context, int rank, HowLost how, std::string why) {
  why = why.substr(0, why.find('\n'));
  if (how == HowLost::kLeft) why = why.empty() ? "left" : "left; before that, " + why;
  const std::string name = "rank " + std::to_string(rank) + " is lost: ";
  if (why.empty())
    why = name + "it did not say why";
  else if (how != HowLost::kAnnounced)
    why = name + why;
  const std::lock_guard lock(mutex_);
  if (context == kEveryGroup && how == HowLost::kAnnounced && lost_to_all_.empty())
    lost_to_all_ = why;
  if (context == kEveryGroup && how == HowLost::kNoticed && first_loss_.empty()) first_loss_ = why;
  lost_.try_emplace({context, rank}, why);
  notify();
}

std::string C10dWorld::lost(uint64_t context, int rank) {
  const std::lock_guard lock(mutex_);
  if (!lost_to_all_.empty()) return lost_to_all_;
  for (const uint64_t which : {context, kEveryGroup})
    if (const auto found = lost_.find({which, rank}); found != lost_.end()) return found->second;
  return {};
}

uint64_t C10dWorld::send(std::span<const std::byte> bytes, uint64_t context, int to, int tag) {
  if (to != rank_)
    return write(*peers_[static_cast<size_t>(to)], {.context = context, .tag = tag}, bytes);
  auto memory = std::make_shared<Buffer>();
  {
    const std::lock_guard lock(mutex_);
    *memory = buffers_.take(bytes.size());
  }
  if (!bytes.empty()) std::memcpy(memory->bytes().data(), bytes.data(), bytes.size());
  const std::span<const std::byte> copy = memory->bytes();
  deliver({context, to, tag}, {.size = copy.size(), .pieces = {{std::move(memory), copy}}});
  return 0;
}

bool C10dWorld::is_sent(int to, uint64_t number) {
  if (to == rank_) return true;
  const std::lock_guard lock(mutex_);
  return number < peers_[static_cast<size_t>(to)]->sent;
}

uint64_t C10dWorld::next_receive(const Lane& lane) {
  const std::lock_guard lock(mutex_);
  return inboxes_[lane].receives++;
}

std::optional<C10dWorld::Message> C10dWorld::take(const Lane& lane, uint64_t number) {
  const std::lock_guard lock(mutex_);
  Inbox& inbox = inboxes_[lane];
  if (number < inbox.first || number - inbox.first >= inbox.messages.size()) return std::nullopt;
  auto message = std::exchange(inbox.messages[number - inbox.first], std::nullopt);
  for (; !inbox.messages.empty() && !inbox.messages.front(); ++inbox.first)
    inbox.messages.pop_front();
  return message;
}

void C10dWorld::give(Message message) {
  const std::lock_guard lock(mutex_);
  for (Piece& piece : message.pieces) {
    // Only the receiver adds owners, and it has dropped its own for what it delivered. So a count
    // of 1 means that nobody else reads this memory.
    if (piece.memory.use_count() == 1) buffers_.give(*piece.memory);
    piece.memory.reset();
  }
}

void C10dWorld::announce(uint64_t context, std::span<const int> ranks,
                         std::string_view why) noexcept try {
  if (context == kEveryGroup) lose(context, rank_, HowLost::kAnnounced, std::string(why));
  std::vector<std::pair<int, uint64_t>> notices;
  for (const int r : ranks)
    if (r != rank_)
      notices.emplace_back(
          r, say_farewell(*peers_[static_cast<size_t>(r)], kLoss, context, why.substr(0, kNotice)));
  // Whoever announces is about to leave.
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, kGoodbye, [&] {
    return std::all_of(notices.begin(), notices.end(), [&](const auto& notice) {
      const Peer& peer = *peers_[static_cast<size_t>(notice.first)];
      return peer.sender_ended || notice.second < peer.sent;
    });
  });
} catch (...) {
}

uint64_t C10dWorld::new_base() {
  const std::lock_guard lock(mutex_);
  return bases_++;
}

void C10dWorld::await_change(uint64_t& seen, std::chrono::steady_clock::time_point until) {
  std::unique_lock lock(mutex_);
  changed_.wait_until(lock, until, [&] { return changes_ != seen; });
  seen = changes_;
}

void C10dWorld::sum(std::span<float> values) {
  std::vector<at::Tensor> tensors = {
      at::from_blob(values.data(), {static_cast<int64_t>(values.size())}, at::kFloat)};
  group_->allreduce(tensors)->wait();
}

}  // namespace thinwire
