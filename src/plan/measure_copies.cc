// measure_copies: sends a few megabytes over a TCP connection of this process to itself.
// SPDX-License-Identifier: Apache-2.0
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <vector>

#include "thinwire/step_plan.h"

namespace thinwire {
namespace {

constexpr size_t kBytes = size_t{4} << 20;  // of a turn: a millisecond, and more than caches near a core hold
constexpr size_t kPiece = size_t{64} << 10;
constexpr size_t kTurns = 9;  // the first ones enlarge the connection's windows

class Socket {
 public:
  explicit Socket(int number) : number_(number) {}
  ~Socket() {
    if (number_ >= 0) close(number_);
  }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  int number() const noexcept { return number_; }

 private:
  const int number_;
};

sockaddr* address_of(sockaddr_in& address) { return reinterpret_cast<sockaddr*>(&address); }

// Sends `out` and receives as much, in turns, on one thread. False if the connection fails.
bool pass(const Socket& sender, const Socket& receiver, const std::vector<std::byte>& out,
          std::vector<std::byte>& in) {
  size_t sent = 0, received = 0;
  while (received < in.size()) {
    if (sent < out.size()) {
      const ssize_t more =
          send(sender.number(), out.data() + sent, std::min(kPiece, out.size() - sent),
               MSG_DONTWAIT | MSG_NOSIGNAL);
      if (more > 0) sent += static_cast<size_t>(more);
    }
    // Waits for what was sent and has not come: a loop of attempts would count as work.
    const bool waits = sent == out.size() || sent - received >= kPiece;
    const ssize_t more = recv(receiver.number(), in.data() + received, in.size() - received,
                              waits ? 0 : MSG_DONTWAIT);
    if (more == 0 || (more < 0 && waits)) return false;
    if (more > 0) received += static_cast<size_t>(more);
  }
  return true;
}

}  // namespace

double measure_copies() {
  const Socket listener(socket(AF_INET, SOCK_STREAM, 0));
  const Socket sender(socket(AF_INET, SOCK_STREAM, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  if (bind(listener.number(), address_of(address), sizeof address) != 0 ||
      listen(listener.number(), 1) != 0 ||
      getsockname(listener.number(), address_of(address), &length) != 0 ||
      connect(sender.number(), address_of(address), sizeof address) != 0)
    return 0;
  const Socket receiver(accept(listener.number(), nullptr, nullptr));

  const std::vector<std::byte> out(kBytes);
  std::vector<std::byte> in(kBytes);
  std::array<double, kTurns> seconds{};
  for (double& turn : seconds) {
    const auto began = std::chrono::steady_clock::now();
    if (!pass(sender, receiver, out, in)) return 0;
    turn = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  }
  std::nth_element(seconds.begin(), seconds.begin() + kTurns / 2, seconds.end());
  return seconds[kTurns / 2] / kBytes;
}

}  // namespace thinwire
