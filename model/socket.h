// Lines of text over TCP, as ranks and harness exchange them.
#pragma once

#include <netinet/in.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "model/fd.h"

namespace stepladder {

class Socket : public Fd {
 public:
  static constexpr size_t kMaxLine = 1 << 16;  // bytes; lines between ranks are far shorter

  using Fd::Fd;
  /// Call before send(): sends each line at once (TCP_NODELAY), and waits at most `patience_s`, in whole
  /// seconds, for a reader that hangs.
  void prepare(double patience_s = 1.0) const;
  /// Sends `line`. False where the reader is gone or hangs; whoever receives from that reader notices it too.
  bool send(const std::string& line) const;
  /// Appends the available bytes to `text`, after waiting for some. False at the end, and once `text` passes
  /// `limit`.
  bool receive(std::string& text, size_t limit = kMaxLine) const;
  /// The next line, `text` keeping what follows it; nothing at the end or the deadline.
  std::optional<std::string> line(std::string& text, std::chrono::steady_clock::time_point deadline) const;
};

/// `text` on one line, in one field: control characters of ASCII and, in UTF-8, of Latin-1, which a terminal
/// would obey, become blanks.
std::string one_field(std::string text);
/// The tab-separated fields of `line`, each as one_field().
std::vector<std::string> fields_of(const std::string& line);
/// Whether two secrets are equal, in a time that doesn't tell where they differ.
bool same_secret(const std::string& theirs, const std::string& ours);
/// 128 bits that nobody else on the network guesses, in hex.
std::string random_secret();

/// An IPv4 address of the host `name`. Throws InputError with what the resolver says.
sockaddr_in resolve(const std::string& name, int port);
/// Whether only this machine reaches `address`.
bool is_loopback(const sockaddr_in& address);
/// The address as text: "10.0.0.7".
std::string address_text(const sockaddr_in& address);
/// A socket connected to `address` before `deadline`; else a closed one, with errno set.
Socket connect_to(const sockaddr_in& address, std::chrono::steady_clock::time_point deadline);
/// A socket bound to `address` and listening; else a closed one, with errno set.
Socket listen_at(const sockaddr_in& address);
/// The port of a bound socket.
int port_of(const Socket& socket);
/// The address of the other side of a connection.
sockaddr_in peer_of(const Socket& socket);
/// A port that was free a moment ago, on every address of this machine. Throws Error.
int free_port();

}  // namespace stepladder
