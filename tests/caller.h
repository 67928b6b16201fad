// A TCP client that sends any line, such as one that no rank would send.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <thread>

#include "model/socket.h"

namespace stepladder {

class Caller {
 public:
  /// Connects to `to`, "host:port"; waits up to 10 s for a listener.
  explicit Caller(const std::string& to) {
    const size_t colon = to.find(':');
    const sockaddr_in address = resolve(to.substr(0, colon), std::stoi(to.substr(colon + 1)));
    const auto deadline = in_seconds(10.0);
    while (!(socket_ = connect_to(address, deadline)).open() && std::chrono::steady_clock::now() < deadline)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    EXPECT_TRUE(socket_.open()) << to;
    socket_.prepare();
  }
  void say(const std::string& line) const { EXPECT_TRUE(socket_.send(line)); }
  /// The next line received; "" at the end of the connection.
  std::string hear() { return socket_.line(pending_, in_seconds(10.0)).value_or(""); }

 private:
  Socket socket_;
  std::string pending_;
};

}  // namespace stepladder
