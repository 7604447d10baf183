// Dials all streams of one connection and shakes hands on each, again and again until one deadline. Polled by its
// owner; needs no thread.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/fd.h"
#include "cgx/settings.h"
#include "cgx/transport.h"
#include "transport/handshake.h"
#include "transport/socket/address.h"

namespace cgx::transport::socket {

/// Where to dial from and to.
struct Route {
  std::string device;
  Address from;  // empty: the kernel chooses
  Address to;
};

class SocketConnector final : public Connector {
 public:
  /// `settings` outlives it; `streams` is at least 1.
  SocketConnector(const Settings& settings, Route route, const wire::Handle& handle, const ConnectOptions& options,
                  std::size_t streams);

  Status progress() override;
  std::unique_ptr<Connection> take() override { return std::move(ready_); }

 private:
  enum class State { Start, Dialing, Backoff, Ready, Failed };
  struct Line {
    Fd fd;
    bool connected = false;
    bool welcome = false;
    std::optional<DialHandshake> handshake;
  };

  Status start();
  Status dial(Line& line);
  Status advance();
  Status advance(Line& line);
  Status assemble();
  Status fail(Status why);
  Status expired();

  const Settings& settings_;
  const Route route_;
  const Nonce nonce_;
  const Role role_;
  const std::vector<std::byte> hello_;
  const std::string peer_;  // for messages
  const Clock::time_point end_;

  State state_ = State::Start;
  std::vector<Line> lines_;
  Clock::time_point retryAt_{};
  Clock::duration backoff_;
  Status last_;  // why the last attempt failed, or what failed for good
  std::unique_ptr<Connection> ready_;
};

}  // namespace cgx::transport::socket
