// A listening socket and the handshakes of everybody who dials it, on a progress thread.
#pragma once

#include <array>
#include <deque>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/fd.h"
#include "cgx/settings.h"
#include "cgx/transport.h"
#include "transport/handshake.h"
#include "transport/socket/address.h"
#include "transport/socket/reactor.h"

namespace cgx::transport::socket {

class SocketListener final : public Listener, private Source {
 public:
  /// `settings` outlives it.
  static Result<std::unique_ptr<Listener>> create(const Settings& settings, const std::string& device,
                                                  const Address& address, Role role);
  ~SocketListener() override;

  const Handle& handle() const override { return handle_; }
  Result<std::unique_ptr<Connection>> accept() override;

 private:
  class Guest;
  /// Streams of one dialer that have said hello, until all of them have.
  struct Party {
    Nonce connection{};
    std::vector<Fd> streams;
    std::size_t present = 0;
    std::vector<std::byte> hello;
    std::string peer;
    Clock::time_point end;
  };

  SocketListener(const Settings& settings, Role role, Reactor::Share reactor, Fd fd);
  bool ready(std::uint32_t events) noexcept override;
  void tick(Clock::time_point now) noexcept override;
  bool resumed() noexcept override { return takeGuests(); }
  /// True: there may be more.
  bool takeGuests() noexcept;
  void admit(Fd fd);
  /// Called by a guest whose handshake has ended; may free it.
  void guestDone(Guest& guest, Status status) noexcept;
  void join(Guest& guest);
  void complaint(const Guest& guest, const Status& status);
  void forget(Guest& guest) noexcept;

  const Settings& settings_;
  const Role role_;
  Reactor::Share reactor_;
  Loop& loop_;
  Fd fd_;
  Nonce nonce_{};
  Handle handle_{};
  std::string name_;

  std::mutex mutex_;                          // guards what follows
  std::list<std::unique_ptr<Guest>> guests_;  // oldest first
  std::list<Party> parties_;
  std::deque<std::unique_ptr<Connection>> finished_;
  Status trouble_;  // of the last accept4, cleared when one succeeds
  int complaints_ = 0;
  bool closing_ = false;
};

}  // namespace cgx::transport::socket
