// Groups whose ranks are processes that mpirun started. They use point-to-point messages only,
// because a collective of MPI that waits for a lost rank cannot be abandoned.
//
// All groups share one communicator. Each process numbers its groups on its own and tells the other
// members the number; a message carries it in its tag, as its receiver has it. So a split needs no
// agreement beyond its members, and none of MPI's blocking calls.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <exception>
#include <numeric>

#include "comm/mpi/mpi_transfer.h"
#include "comm/mpi/mpi_world.h"
#include "comm/tags.h"
#include "core/bytes.h"
#include "thinwire/group.h"

namespace thinwire {
namespace {

class MpiGroup final : public Group {
 public:
  explicit MpiGroup(MpiGroupState members)
      : members_(std::make_shared<MpiGroupState>(std::move(members))) {}

  // Whoever waits for a rank that an exception drove out hears of it at once. One that leaves in
  // peace may have messages under way; it is missed at the deadline.
  ~MpiGroup() override {
    if (std::uncaught_exceptions() > exceptions_) announce_loss();
  }

  int rank() const noexcept override { return members_->rank; }
  int size() const noexcept override { return static_cast<int>(members_->world_ranks.size()); }

  std::unique_ptr<Transfer> send(std::span<const std::byte> buffer, int to, int tag) override {
    check_message(to, size(), tag);
    count_sent(buffer.size());
    return mpi_send(members_, buffer, to, tag);
  }

  std::unique_ptr<Transfer> receive(std::span<std::byte> buffer, int from, int tag) override {
    check_message(from, size(), tag);
    count_received(buffer.size());
    return mpi_receive(members_, buffer, from, tag);
  }

  std::unique_ptr<Group> split(int colour) override;
  void abort(std::string_view reason) noexcept override;
  void library_all_reduce(std::span<float> values) override;

 private:
  void idle(int look, Instant until) override {
    members_->world->listen();
    Group::idle(look, until);
  }

  void announce_loss() const {
    std::vector<MpiWorld::Listener> others;
    for (int r = 0; r < size(); ++r)
      if (r != rank() && members_->context(r) != 0)
        others.push_back({members_->world_rank(r), members_->context(r)});
    std::string why = members_->cause;
    if (why.empty())
      why = "rank " + std::to_string(members_->world->rank()) +
            (failure().empty() ? " left the group by an exception" : " failed: " + failure());
    members_->world->announce(others, why);
  }

  void make_comm();

  const std::shared_ptr<MpiGroupState> members_;
  const int exceptions_ = std::uncaught_exceptions();
  MPI_Comm comm_ =
      MPI_COMM_NULL;  // of library_all_reduce; never freed, which would take all members
};

std::unique_ptr<Group> MpiGroup::split(int colour) {
  struct Choice {
    int32_t colour;
    uint32_t context;
  };
  const Choice mine{colour, members_->world->new_context()};
  std::vector<Choice> all(static_cast<size_t>(size()));
  all_gather(byte_view(mine), std::as_writable_bytes(std::span(all)));
  MpiGroupState part{.world = members_->world,
                     .world_ranks = {},
                     .contexts = {},
                     .bodies = {},
                     .cause = {},
                     .family = members_->family};
  for (int r = 0; r < size(); ++r) {
    const Choice& choice = all[static_cast<size_t>(r)];
    if (choice.colour != colour) continue;
    if (r == rank()) part.rank = static_cast<int>(part.world_ranks.size());
    part.world_ranks.push_back(members_->world_rank(r));
    part.contexts.push_back(choice.context);
    part.bodies.push_back(0);
  }
  auto group = std::make_unique<MpiGroup>(std::move(part));
  group->set_deadline(deadline());
  return group;
}

void MpiGroup::abort(std::string_view reason) noexcept {
  MpiWorld& world = *members_->world;
  try {
    std::vector<MpiWorld::Listener> all;
    const std::string why =
        "rank " + std::to_string(world.rank()) + " failed: " + std::string(reason);
    if (const auto& family = members_->family; family != nullptr) {
      for (size_t i = 0; i < family->world_ranks.size(); ++i)
        if (family->contexts[i] != 0 && !world.has_ended(family->world_ranks[i]))
          all.push_back({family->world_ranks[i], family->contexts[i]});
      world.announce_abort(all, why);
      return;
    }
    for (int r = 0; r < world.size(); ++r) all.push_back({r, MpiWorld::kEveryGroup});
    world.announce(all, why);
  } catch (...) {
    world.close();
  }
}

// The one call of MPI's that blocks. All members have come, so it has nothing to wait for.
void MpiGroup::make_comm() {
  if (comm_ != MPI_COMM_NULL) return;
  barrier();
  const auto inside = members_->world->enter();
  if (!inside) return;
  const MPI_Comm all = members_->world->comm();
  MPI_Group world = MPI_GROUP_NULL, mine = MPI_GROUP_NULL;
  MPI_Comm_group(all, &world);
  MPI_Group_incl(world, size(), members_->world_ranks.data(), &mine);
  MPI_Comm_create_group(all, mine, static_cast<int>(members_->context(0)) % kLastTag, &comm_);
  MPI_Group_free(&mine);
  MPI_Group_free(&world);
  MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN);
}

// MPI does not say what it sent; counted is what every bandwidth-optimal way sends, 2 (n-1)/n of
// all.
void MpiGroup::library_all_reduce(std::span<float> values) {
  if (size() == 1) return;
  make_comm();
  const Instant until = give_up_at();
  constexpr size_t kMost = size_t{1} << 28;  // MPI counts in int
  for (size_t begin = 0; begin < values.size(); begin += kMost) {
    const auto piece = values.subspan(begin, std::min(kMost, values.size() - begin));
    const auto sum = mpi_sum(members_, comm_, piece);
    wait_until(std::span(&sum, 1), until);
  }
  const auto n = static_cast<size_t>(size());
  const size_t counted = 2 * (n - 1) * values.size_bytes() / n;
  count_sent(counted);
  count_received(counted);
}

}  // namespace

std::unique_ptr<Group> make_group_of(MpiGroupState members) {
  return std::make_unique<MpiGroup>(std::move(members));
}

// Every call splits a group of all processes that nobody else uses, so that each gets a channel of
// its own.
Result<std::unique_ptr<Group>> make_mpi_group() {
  auto world = MpiWorld::get();
  if (!world) return world.status();
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  static auto* const base = [](MpiWorld* w) {
    const auto n = static_cast<size_t>(w->size());
    MpiGroupState all{.world = w,
                      .rank = w->rank(),
                      .world_ranks = std::vector<int>(n),
                      .contexts = std::vector<uint32_t>(n, MpiWorld::kFirstContext),
                      .bodies = std::vector<uint32_t>(n),
                      .cause = {},
                      .family = nullptr};
    std::iota(all.world_ranks.begin(), all.world_ranks.end(), 0);
    return new MpiGroup(std::move(all));
  }(world.value());
  return base->split(0);
}

}  // namespace thinwire
