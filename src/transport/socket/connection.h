// A connection over several TCP streams: joins the streams, the exchange and the reactor, and decides how it ends.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "cgx/settings.h"
#include "cgx/transport.h"
#include "transport/socket/stream.h"

namespace cgx::transport::socket {

class SocketConnection final : public Connection, private Stream::Owner {
 public:
  /// Sockets that have finished their handshakes, in the order of their stream index.
  struct Parts {
    std::vector<Fd> streams;
    std::string peer;
    std::vector<std::byte> hello;
  };
  static Result<std::unique_ptr<Connection>> create(const Settings& settings, Parts parts);
  ~SocketConnection() override;

  Status send(std::span<const std::byte> data, int tag, Priority priority, Completion& completion) override;
  Status recv(std::span<const Slot> slots, Completion& completion) override;
  Status status() const override { return exchange_.status(); }
  void close(const Status& why) noexcept override;
  const std::string& peer() const override { return peer_; }
  std::span<const std::byte> hello() const override { return hello_; }

 private:
  SocketConnection(Reactor::Share reactor, Parts& parts);
  void streamEnded(Status reason, bool clean) noexcept override;
  void streamFailed(Status why, const Farewell& farewell) noexcept override;
  void streamTick(Clock::time_point now) noexcept override;
  void sendsMatched() noexcept override;

  Status posted(Status status, const Misfit& misfit);
  /// The one way to end: makes `why` sticky, stops all access to memory, says farewell, tells every completion. Once;
  /// else does nothing.
  void finish(Status why, const Farewell& farewell) noexcept;
  void awaitFinish() noexcept;

  Reactor::Share reactor_;
  std::string peer_;
  std::vector<std::byte> hello_;
  Exchange exchange_;
  std::vector<std::unique_ptr<Stream>> streams_;
  bool closed_ = false;

  std::mutex finishMutex_;  // guards what follows
  std::condition_variable finishedSignal_;
  std::thread::id finisher_;
  bool finished_ = false;
};

}  // namespace cgx::transport::socket
