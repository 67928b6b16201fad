#include "model/socket.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <iomanip>
#include <memory>
#include <random>
#include <sstream>

#include "model/error.h"

namespace stepladder {
namespace {

using Clock = std::chrono::steady_clock;

const sockaddr* any(const sockaddr_in& address) {
  return reinterpret_cast<const sockaddr*>(&address);
}

Socket tcp(int flags = 0) {
  return Socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | flags, 0));
}

}  // namespace

void Socket::prepare(double patience_s) const {
  const int on = 1;
  const timeval limit{.tv_sec = static_cast<time_t>(patience_s), .tv_usec = 0};
  ::setsockopt(get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  ::setsockopt(get(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
}

bool Socket::send(const std::string& line) const {
  const std::string text = line + "\n";
  for (size_t sent = 0; sent < text.size();) {
    const ssize_t n = ::send(get(), text.data() + sent, text.size() - sent, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    sent += static_cast<size_t>(n);
  }
  return true;
}

bool Socket::receive(std::string& text, size_t limit) const {
  std::array<char, 1 << 14> buffer;
  ssize_t n = 0;
  const size_t most = std::min(buffer.size(), limit + 1 - std::min(limit, text.size()));
  do n = ::recv(get(), buffer.data(), most, 0);
  while (n < 0 && errno == EINTR);
  if (n > 0) text.append(buffer.data(), static_cast<size_t>(n));
  return n > 0 && text.size() <= limit;
}

std::optional<std::string> Socket::line(std::string& text, Clock::time_point deadline) const {
  for (;;) {
    if (const size_t end = text.find('\n'); end != std::string::npos) {
      const std::string line = text.substr(0, end);
      text.erase(0, end + 1);
      return line;
    }
    pollfd fd{get(), POLLIN, 0};
    if (::poll(&fd, 1, milliseconds_until(deadline)) <= 0 || !receive(text)) return std::nullopt;
  }
}

std::string one_field(std::string text) {
  for (size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    const bool latin = c >= 0x80 && c < 0xA0 && i > 0 && static_cast<unsigned char>(text[i - 1]) == 0xC2;
    if (c < ' ' || c == 0x7F || latin) text[i] = ' ';
  }
  return text;
}

std::vector<std::string> fields_of(const std::string& line) {
  std::vector<std::string> fields;
  for (size_t begin = 0; begin <= line.size();) {
    const size_t end = std::min(line.find('\t', begin), line.size());
    fields.push_back(one_field(line.substr(begin, end - begin)));
    begin = end + 1;
  }
  return fields;
}

bool same_secret(const std::string& theirs, const std::string& ours) {
  unsigned differ = theirs.size() == ours.size() ? 0 : 1;
  for (size_t i = 0; i < theirs.size(); ++i)
    differ |=
        static_cast<unsigned char>(theirs[i]) ^ static_cast<unsigned char>(i < ours.size() ? ours[i] : 0);
  return differ == 0;
}

std::string random_secret() {
  std::random_device random;
  std::ostringstream hex;
  for (int i = 0; i < 4; ++i) hex << std::hex << std::setw(8) << std::setfill('0') << random();
  return hex.str();
}

sockaddr_in resolve(const std::string& name, int port) {
  addrinfo hints{};
  hints.ai_family = AF_INET;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error = ::getaddrinfo(name.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (error != 0) throw InputError(::gai_strerror(error));
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owned(found, ::freeaddrinfo);
  sockaddr_in address{};
  std::memcpy(&address, found->ai_addr, sizeof address);
  return address;
}

bool is_loopback(const sockaddr_in& address) {
  return ntohl(address.sin_addr.s_addr) >> 24 == 127;
}

std::string address_text(const sockaddr_in& address) {
  std::array<char, INET_ADDRSTRLEN> text{};
  ::inet_ntop(AF_INET, &address.sin_addr, text.data(), text.size());
  return text.data();
}

Socket connect_to(const sockaddr_in& address, Clock::time_point deadline) {
  Socket socket = tcp(SOCK_NONBLOCK);
  int error = ::connect(socket.get(), any(address), sizeof address) == 0 ? 0 : errno;
  if (error == EINPROGRESS) {
    pollfd fd{socket.get(), POLLOUT, 0};
    socklen_t size = sizeof error;
    if (::poll(&fd, 1, milliseconds_until(deadline)) <= 0)
      error = ETIMEDOUT;
    else
      ::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &size);
  }
  if (error != 0)
    socket.close();
  else
    ::fcntl(socket.get(), F_SETFL, 0);  // reads and writes wait again
  errno = error;
  return socket;
}

Socket listen_at(const sockaddr_in& address) {
  Socket socket = tcp();
  const int on = 1;
  ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (::bind(socket.get(), any(address), sizeof address) == 0 && ::listen(socket.get(), SOMAXCONN) == 0)
    return socket;
  const int error = errno;
  socket.close();
  errno = error;
  return socket;
}

int port_of(const Socket& socket) {
  sockaddr_in address{};
  socklen_t size = sizeof address;
  ::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &size);
  return ntohs(address.sin_port);
}

sockaddr_in peer_of(const Socket& socket) {
  sockaddr_in address{};
  socklen_t size = sizeof address;
  ::getpeername(socket.get(), reinterpret_cast<sockaddr*>(&address), &size);
  return address;
}

int free_port() {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_ANY);
  const Socket socket = listen_at(address);
  if (!socket.open())
    throw Error(cat("no TCP port is free for the ranks to meet at: ", std::strerror(errno)));
  return port_of(socket);
}

}  // namespace stepladder
