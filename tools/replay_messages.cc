// Replays the messages of a dense exchange in SimGrid, for tools/plan_scale.py; no part of the build.
// SPDX-License-Identifier: Apache-2.0
//
//   apt-get install libsimgrid-dev && g++ -std=c++17 -O2 tools/replay_messages.cc -lsimgrid -o replay_messages
//   replay_messages RANKS BITS_PER_SECOND LATENCY_SECONDS MESSAGE_BYTES
//
// Each rank sends a part to every other one, waits for its own parts, sends a mean to every other one, and waits
// for all means. Every rank has one link each way to a switch that is never full. Prints the seconds.
#include <cstdio>
#include <cstdlib>
#include <simgrid/s4u.hpp>
#include <string>
#include <vector>

namespace sg4 = simgrid::s4u;

namespace {

constexpr double kWithHeaders = 1.048;  // as LinkSpec::seconds_for

void exchange(int rank, int ranks, double bytes) {
  for (const char* phase : {"part", "mean"}) {
    static double content = 0;
    std::vector<void*> received(static_cast<size_t>(ranks));
    std::vector<sg4::CommPtr> messages;
    const auto box = [&](int from, int to) {
      return sg4::Mailbox::by_name(std::string(phase) + std::to_string(from) + "-" +
                                   std::to_string(to));
    };
    for (int i = 1; i < ranks; ++i) {
      const int from = (rank + ranks - i) % ranks, to = (rank + i) % ranks;
      messages.push_back(box(from, rank)->get_async(&received[static_cast<size_t>(from)]));
      messages.push_back(
          box(rank, to)->put_async(&content, static_cast<uint64_t>(bytes * kWithHeaders)));
    }
    for (const sg4::CommPtr& message : messages) message->wait();
  }
}

}  // namespace

int main(int argc, char** argv) {
  sg4::Engine engine(&argc, argv);
  if (argc != 5) {
    std::fprintf(stderr,
                 "usage: replay_messages RANKS BITS_PER_SECOND LATENCY_SECONDS MESSAGE_BYTES\n");
    return 2;
  }
  const int ranks = std::atoi(argv[1]);
  const double rate = std::atof(argv[2]) / 8, latency = std::atof(argv[3]),
               bytes = std::atof(argv[4]);
  // Bytes take the time of their rate, and no more.
  sg4::Engine::set_config("network/model:CM02");
  sg4::Engine::set_config("network/TCP-gamma:0");
  sg4::Engine::set_config("network/bandwidth-factor:1");
  sg4::Engine::set_config("network/latency-factor:1");
  sg4::Engine::set_config("network/weight-S:0");
  auto* zone = sg4::create_star_zone("switch");
  std::vector<sg4::Host*> hosts;
  for (int rank = 0; rank < ranks; ++rank) {
    const std::string name = "rank" + std::to_string(rank);
    sg4::Host* host = zone->create_host(name, 1e9);
    const auto* link =
        zone->create_split_duplex_link(name + "-link", rate)->set_latency(latency / 2)->seal();
    zone->add_route(host->get_netpoint(), nullptr, nullptr, nullptr,
                    {{link, sg4::LinkInRoute::Direction::UP}}, true);
    hosts.push_back(host);
  }
  zone->seal();
  for (int rank = 0; rank < ranks; ++rank)
    sg4::Actor::create("rank", hosts[static_cast<size_t>(rank)],
                       [=] { exchange(rank, ranks, bytes); });
  engine.run();
  std::printf("%.6f\n", sg4::Engine::get_clock());
}
