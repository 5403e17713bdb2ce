// LocalRoom: matches sends and receives, and tells the ranks that wait when a rank is gone.
// SPDX-License-Identifier: Apache-2.0
#include "comm/local/local_room.h"

#include <algorithm>
#include <cstring>

#include "comm/peer_lost.h"
#include "thinwire/status.h"

namespace thinwire {

using Lock = std::unique_lock<std::mutex>;

LocalRoom::LocalRoom(std::shared_ptr<LocalHub> hub, std::vector<int> world_ranks)
    : hub_(std::move(hub)), world_ranks_(std::move(world_ranks)), members_(world_ranks_.size()) {
  hub_->rooms.push_back(this);
}

LocalRoom::~LocalRoom() {
  const Lock lock(hub_->mutex);
  std::erase(hub_->rooms, this);
}

void LocalRoom::post(LocalPost& post) {
  Lock lock(hub_->mutex);
  const auto key = lane_of(post);
  Lane& lane = lanes_[key];
  auto& others = post.is_send ? lane.receives : lane.sends;
  if (others.empty() || !hub_->aborted.empty()) {
    (post.is_send ? lane.sends : lane.receives).push_back(&post);
    return;
  }
  LocalPost& other = *others.front();
  others.pop_front();
  if (others.empty()) lanes_.erase(key);

  LocalPost& from = post.is_send ? post : other;
  LocalPost& to = post.is_send ? other : post;
  if (from.size == to.size) {
    from.state = to.state = LocalPost::State::kCopying;  // withdraw waits for its end
    lock.unlock();
    if (from.size > 0) std::memcpy(to.data, from.data, from.size);
    lock.lock();
    to.state = LocalPost::State::kDone;
  } else {
    to.state = LocalPost::State::kWrongSize;
    to.size_sent = from.size;
  }
  from.state = LocalPost::State::kDone;
  wake(other.rank);
}

void LocalRoom::withdraw(LocalPost& post) noexcept {
  Lock lock(hub_->mutex);
  member(post.rank).changed.wait(lock, [&] { return post.state != LocalPost::State::kCopying; });
  if (post.state != LocalPost::State::kPosted) return;
  const auto lane = lanes_.find(lane_of(post));
  std::erase(post.is_send ? lane->second.sends : lane->second.receives, &post);
  if (lane->second.sends.empty() && lane->second.receives.empty()) lanes_.erase(lane);
}

bool LocalRoom::done(const LocalPost& post) {
  const Lock lock(hub_->mutex);
  switch (post.state) {
    case LocalPost::State::kDone:
      return true;
    case LocalPost::State::kCopying:
      return false;
    case LocalPost::State::kWrongSize:
      throw Error(ErrorCode::kMismatch, "local group: " + describe(post) + ": the message has " +
                                            std::to_string(post.size_sent));
    case LocalPost::State::kPosted:
      break;
  }
  const Member& peer = member(post.peer);
  if (hub_->aborted.empty() && !peer.left) return false;
  const std::string& why = hub_->aborted.empty() ? peer.why : hub_->aborted;
  member(post.rank).why = why;  // so that whoever misses this rank hears of the first cause
  throw PeerLost("local group: " + why, describe(post));
}

std::string LocalRoom::describe(const LocalPost& post) const {
  return (post.is_send ? "send of " : "receive of ") + std::to_string(post.size) + " bytes " +
         (post.is_send ? "to" : "from") + " rank " + std::to_string(world_rank(post.peer)) +
         ", tag " + std::to_string(post.tag);
}

void LocalRoom::sleep(int rank, uint64_t& seen, Instant until) {
  Lock lock(hub_->mutex);
  Member& me = member(rank);
  me.changed.wait_until(lock, until, [&] { return me.events != seen; });
  seen = me.events;
}

void LocalRoom::abort(int rank, std::string_view reason) {
  const Lock lock(hub_->mutex);
  if (!hub_->aborted.empty()) return;
  hub_->aborted = "rank " + std::to_string(world_rank(rank)) + " failed: " + std::string(reason);
  if (hub_->first_lost < 0) hub_->first_lost = world_rank(rank);
  for (LocalRoom* room : hub_->rooms) room->wake_all();
}

void LocalRoom::leave(int rank, const std::string& failure, bool by_exception) noexcept {
  const Lock lock(hub_->mutex);
  Member& me = member(rank);
  me.left = true;
  if (me.why.empty())
    me.why = "rank " + std::to_string(world_rank(rank)) +
             (failure.empty() ? " left the group" : " failed: " + failure);
  if (by_exception && hub_->first_lost < 0) hub_->first_lost = world_rank(rank);
  wake_all();
}

std::shared_ptr<LocalRoom> LocalRoom::sub_room(uint64_t split, int colour,
                                               const std::vector<int>& world_ranks) {
  const Lock lock(hub_->mutex);
  const auto key = std::pair(split, colour);
  SubRoom& sub = sub_rooms_[key];
  if (!sub.room) sub.room = std::make_shared<LocalRoom>(hub_, world_ranks);
  const auto room = sub.room;
  if (++sub.taken == world_ranks.size()) sub_rooms_.erase(key);
  return room;
}

void LocalRoom::wake(int rank) {
  ++member(rank).events;
  member(rank).changed.notify_all();
}

void LocalRoom::wake_all() {
  for (int r = 0; r < size(); ++r) wake(r);
}

}  // namespace thinwire
