// Threads that wait for a process group, and the queues between them and the groups.
// SPDX-License-Identifier: Apache-2.0
#include "comm/c10d/c10d_world.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "comm/c10d/parcel.h"
#include "thinwire/status.h"

namespace thinwire {
namespace {

constexpr int kTag = 29783;  // of all that thinwire sends, among the user's own
constexpr size_t kPiece = size_t{16} << 20;
constexpr auto kForever = std::chrono::hours(24 * 365);

enum Kind : uint32_t { kMessage, kLoss, kEnd };

constexpr size_t kNotice = 256;  // bytes of the reason for a loss

at::Tensor as_tensor(std::span<const std::byte> bytes) {
  return at::from_blob(const_cast<std::byte*>(bytes.data()), {static_cast<int64_t>(bytes.size())},
                       at::kByte);
}

// Worlds by process group, which they keep alive.
std::mutex worlds_mutex;
std::map<c10d::ProcessGroup*, std::shared_ptr<C10dWorld>>& worlds() {
  static auto* const all = new std::map<c10d::ProcessGroup*, std::shared_ptr<C10dWorld>>;
  return *all;
}

}  // namespace

// One rank's two threads.
struct C10dWorld::Peer {
  int rank = 0;
  std::thread sender, receiver;
  // Guarded by the world's mutex:
  std::deque<std::shared_ptr<Outgoing>> outbox;
  uint64_t queued = 0;    // messages, in all
  uint64_t received = 0;  // whole messages
  c10::intrusive_ptr<c10d::Work> receiving;
  bool sender_ended = false;
};

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
      if (peer && peer->receiving) peer->receiving->abort();
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
std::vector<std::byte> C10dWorld::farewell(const Peer& peer, std::string_view why) {
  std::vector<std::byte> bytes(sizeof peer.received + why.size());
  std::memcpy(bytes.data(), &peer.received, sizeof peer.received);
  std::ranges::copy(std::as_bytes(std::span(why)), bytes.begin() + sizeof peer.received);
  return bytes;
}

void C10dWorld::enqueue(Peer& peer, std::shared_ptr<Outgoing> message) {
  message->number = peer.queued++;
  peer.outbox.push_back(std::move(message));
}

// The first of the queue, and those behind it as far as a parcel takes them.
C10dWorld::Messages C10dWorld::next_parcel(const Peer& peer) {
  Messages parcel;
  size_t size = 0;
  for (const auto& message : peer.outbox) {
    size += sizeof(MessageFields) + message->bytes.size();
    if (!parcel.empty() && size > kParcel) break;
    parcel.push_back(message);
  }
  return parcel;
}

void C10dWorld::transmit(const Messages& messages, int to) {
  std::vector<MessageView> views;
  for (const auto& message : messages)
    views.push_back({.fields = {.context = message->context,
                                .size = message->bytes.size(),
                                .tag = message->tag,
                                .kind = message->kind},
                     .bytes = message->bytes});
  const PackedParcel parcel = pack_parcel(views);
  const auto send = [&](std::span<const std::byte> part) {
    std::vector<at::Tensor> tensors = {as_tensor(part)};
    group_->send(tensors, to, kTag)->wait(kForever);
  };
  send(parcel.head);
  for (size_t begin = 0; begin < parcel.rest.size(); begin += kPiece)
    send(parcel.rest.subspan(begin, std::min(kPiece, parcel.rest.size() - begin)));
}

void C10dWorld::send_all(Peer& peer) {
  send_until_closed(peer);
  const std::lock_guard lock(mutex_);
  peer.sender_ended = true;
  changed_.notify_all();
}

void C10dWorld::send_until_closed(Peer& peer) {
  for (;;) {
    Messages next;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return closing_ || !peer.outbox.empty(); });
      if (peer.outbox.empty()) return;
      next = next_parcel(peer);
    }
    try {
      transmit(next, peer.rank);
    } catch (const std::exception& error) {
      lose(kEveryGroup, peer.rank, error.what());
      return;
    }
    const std::lock_guard lock(mutex_);
    for (const auto& message : next) {
      message->sent = true;
      peer.outbox.pop_front();
    }
    changed_.notify_all();
  }
}

// False when the world is closing.
bool C10dWorld::fetch(Peer& peer, std::span<std::byte> into) {
  std::vector<at::Tensor> tensors = {as_tensor(into)};
  c10::intrusive_ptr<c10d::Work> work;
  {
    const std::lock_guard lock(mutex_);
    if (closing_) return false;
    work = peer.receiving = group_->recv(tensors, peer.rank, kTag);
  }
  const bool came = work->wait(kForever);
  const std::lock_guard lock(mutex_);
  peer.receiving.reset();
  return came && !closing_;
}

void C10dWorld::receive_all(Peer& peer) {
  std::vector<std::byte> head(kHeadSize);
  const auto lane_of = [&](const MessageFields& fields) {
    return Lane{fields.context, peer.rank, fields.tag};
  };
  const auto require = [](bool right) {
    if (!right)
      throw Error(ErrorCode::kCorrupt, "something else came under tag " + std::to_string(kTag));
  };
  try {
    for (bool more = true; more && fetch(peer, head);) {
      ParcelFields parcel;
      MessageFields first;
      require(read_head(head, parcel, first));
      // Memory grows with what arrives, not with what is announced.
      const uint64_t size = parcel.size - sizeof first;
      const auto behind = std::span(head).subspan(sizeof parcel + sizeof first);
      const auto in_head = behind.first(std::min<uint64_t>(size, behind.size()));
      std::vector<std::byte> bytes(in_head.begin(), in_head.end());
      while (bytes.size() < size) {
        const size_t before = bytes.size();
        bytes.resize(before + std::min<uint64_t>(kPiece, size - before));
        if (!fetch(peer, std::span(bytes).subspan(before))) return;
      }
      if (parcel.messages == 1)  // is not copied again
        more = hand_on(peer, first.kind, lane_of(first), std::move(bytes));
      else
        require(unpack_parcel(parcel, first, bytes, [&](const MessageFields& fields, auto one) {
          return more = hand_on(peer, fields.kind, lane_of(fields), {one.begin(), one.end()});
        }));
    }
  } catch (const std::exception& error) {
    lose(kEveryGroup, peer.rank, error.what());
  }
}

// False when it was the last.
bool C10dWorld::hand_on(Peer& peer, uint32_t kind, const Lane& lane, std::vector<std::byte> bytes) {
  if (kind > kEnd) throw Error(ErrorCode::kCorrupt, "a message of no known kind came");
  std::string why = "left";
  if (kind != kMessage) {
    uint64_t received = 0;
    if (bytes.size() < sizeof received)
      throw Error(ErrorCode::kCorrupt, "an end without the number of messages came");
    std::memcpy(&received, bytes.data(), sizeof received);
    if (kind == kLoss)
      why.assign(reinterpret_cast<const char*>(bytes.data()) + sizeof received,
                 bytes.size() - sizeof received);
    has_received(peer, received);
  }
  if (kind == kEnd) {
    lose(kEveryGroup, peer.rank, why);
    return false;
  }
  {
    const std::lock_guard lock(mutex_);
    ++peer.received;
  }
  if (kind == kLoss)
    lose(lane.context, lane.from, why);
  else
    deliver(lane, std::move(bytes));
  return true;
}

// What a rank received is sent, even if the thread that sent it has not said so yet.
void C10dWorld::has_received(Peer& peer, uint64_t received) {
  const std::lock_guard lock(mutex_);
  for (const auto& message : peer.outbox)
    if (message->number < received) message->sent = true;
}

void C10dWorld::deliver(const Lane& lane, std::vector<std::byte> bytes) {
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
  message->bytes.assign(bytes.begin(), bytes.end());
  if (to == rank_) {
    message->sent = true;
    deliver({context, to, tag}, message->bytes);
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

std::optional<std::vector<std::byte>> C10dWorld::take(const Lane& lane, uint64_t number) {
  const std::lock_guard lock(mutex_);
  Inbox& inbox = inboxes_[lane];
  if (number < inbox.first || number - inbox.first >= inbox.messages.size()) return std::nullopt;
  auto message = std::exchange(inbox.messages[number - inbox.first], std::nullopt);
  for (; !inbox.messages.empty() && !inbox.messages.front(); ++inbox.first)
    inbox.messages.pop_front();
  return message;
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
