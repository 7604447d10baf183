// Handshakes run on the loop; whatever goes wrong with one dialer ends that dialer only.
#include "transport/socket/listener.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <new>

#include "cgx/log.h"
#include "transport/socket/connection.h"
#include "transport/socket/socket_stream.h"

namespace cgx::transport::socket {
namespace {

// Strangers that have not yet said who they are. A flood beyond this pushes out the oldest, so the newest, perhaps
// ours, gets its chance.
constexpr std::size_t kMaxGuests = 128;
// Accepted in one turn. Between turns guests are heard: a burst of good dialers must not push itself out.
constexpr int kGuestsPerTurn = 32;
// A port scan should not fill the log.
constexpr int kMaxComplaints = 4;

struct PortRange {
  int first = 0;
  int last = 0;
};

PortRange parseRange(const std::string& text) {
  PortRange range;
  if (std::sscanf(text.c_str(), "%d-%d", &range.first, &range.last) == 1) range.last = range.first;
  return range;
}

Status bindAndListen(int fd, const Address& address) {
  if (::bind(fd, address.get(), address.length()) != 0) return Status::system("bind", errno);
  if (::listen(fd, SOMAXCONN) != 0) return Status::system("listen", errno);
  return {};
}

Result<Fd> openListening(const Settings& settings, const std::string& device, Address address) {
  const PortRange range = parseRange(settings.portRange);
  const std::string where = device + " (" + address.host() + ")";
  for (int port = range.first; port <= range.last; ++port) {
    Result<Fd> fd = openSocket(address.family());
    if (!fd.ok()) return std::move(fd).status().within("listen on " + where);
    // Ports of a range are few: take one again although connections of an earlier job still wait for their last
    // timeout.
    if (const int on = 1; port != 0) (void)::setsockopt(fd->get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    address.setPort(static_cast<std::uint16_t>(port));
    const Status status = bindAndListen(fd->get(), address);
    if (status.ok()) return std::move(fd).value();
    if (port == 0 || status.sysErrno() != EADDRINUSE) return Status(status).within("listen on " + where);
  }
  return Status(Code::System,
                "listen on " + where + ": every port of CGX_PORT_RANGE=" + settings.portRange + " is in use",
                EADDRINUSE);
}

}  // namespace

/// One stream whose hello is being read.
class SocketListener::Guest final : public Source {
 public:
  Guest(SocketListener& host, Fd fd, Clock::time_point end)
      : host_(host),
        loop_(host.loop_),
        fd_(std::move(fd)),
        number_(fd_.get()),
        peer_(peerAddress(fd_.get()).text()),
        handshake_(host.nonce_, host.role_),
        end_(end) {}
  ~Guest() override { remove(); }

  bool ready(std::uint32_t) noexcept override {
    SocketStream stream(fd_.get());
    Status status = handshake_.progress(stream);
    if (!status.isPending()) host_.guestDone(*this, std::move(status));
    return false;
  }
  void tick(Clock::time_point now) noexcept override {
    if (now > end_) host_.guestDone(*this, Status(Code::Timeout, "it said nothing that makes sense in time"));
  }
  Status start() { return loop_.add(*this, fd_.get()); }
  /// Waits for a call that is running.
  void remove() noexcept { loop_.remove(*this, number_); }
  Fd takeFd() noexcept { return std::move(fd_); }
  const std::string& peer() const noexcept { return peer_; }
  const AcceptHandshake& handshake() const noexcept { return handshake_; }

 private:
  SocketListener& host_;
  Loop& loop_;  // once forgotten by its host a guest must not look at it again
  Fd fd_;
  const int number_;  // of fd_, also after it was taken
  std::string peer_;
  AcceptHandshake handshake_;
  Clock::time_point end_;
};

SocketListener::SocketListener(const Settings& settings, Role role, Reactor::Share reactor, Fd fd)
    : settings_(settings), role_(role), reactor_(std::move(reactor)), loop_(reactor_->pick()), fd_(std::move(fd)) {}

Result<std::unique_ptr<Listener>> SocketListener::create(const Settings& settings, const std::string& device,
                                                         const Address& address, Role role) {
  Result<Nonce> nonce = randomNonce();
  if (!nonce.ok()) return std::move(nonce).status();
  Result<Fd> fd = openListening(settings, device, address);
  if (!fd.ok()) return std::move(fd).status();
  Result<Reactor::Share> reactor = Reactor::acquire(settings);
  if (!reactor.ok()) return std::move(reactor).status();
  std::unique_ptr<SocketListener> listener(
      new SocketListener(settings, role, std::move(reactor).value(), std::move(fd).value()));
  const Address bound = localAddress(listener->fd_.get());
  wire::Handle fields{};
  fields.role = static_cast<std::uint16_t>(role);
  fields.nonce = listener->nonce_ = nonce.value();
  bound.toHandle(fields);
  listener->handle_ = encodeHandle(fields);
  listener->name_ = bound.text();
  CGX_TRY(listener->loop_.add(*listener, listener->fd_.get()));
  return std::unique_ptr<Listener>(std::move(listener));
}

SocketListener::~SocketListener() {
  loop_.remove(*this, fd_.get());
  std::list<std::unique_ptr<Guest>> guests;
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
    guests.swap(guests_);
  }
  for (const auto& guest : guests) guest->remove();
}

Result<std::unique_ptr<Connection>> SocketListener::accept() {
  const std::lock_guard lock(mutex_);
  if (!finished_.empty()) {
    std::unique_ptr<Connection> connection = std::move(finished_.front());
    finished_.pop_front();
    return connection;
  }
  return trouble_.ok() ? Status::pending() : trouble_;
}

bool SocketListener::ready(std::uint32_t) noexcept { return takeGuests(); }

bool SocketListener::takeGuests() noexcept {
  for (int turn = 0; turn < kGuestsPerTurn; ++turn) {
    Fd fd(retryEintr([&] { return ::accept4(fd_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC); }));
    const int failed = errno;
    try {
      if (fd.valid()) {
        admit(std::move(fd));
        continue;
      }
      if (failed == EAGAIN || failed == EWOULDBLOCK) return false;
      if (failed == ECONNABORTED || failed == EPROTO || isPeerLoss(failed)) continue;
      // No descriptors, no memory: the dialers stay in the kernel's queue, and tick() tries again.
      const std::lock_guard lock(mutex_);
      if (trouble_.ok()) {
        trouble_ = descriptorError("accept on " + name_, failed);
        CGX_LOG(Warn, Net, "%s", trouble_.text().c_str());
      }
      return false;
    } catch (const std::bad_alloc&) {
      return false;
    }
  }
  return true;
}

void SocketListener::admit(Fd fd) {
  tune(fd.get(), settings_);
  const auto timeout =
      std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(settings_.connectTimeout));
  auto guest = std::make_unique<Guest>(*this, std::move(fd), Clock::now() + timeout);
  std::unique_ptr<Guest> pushedOut;
  Guest& added = *guest;
  {
    const std::lock_guard lock(mutex_);
    trouble_ = {};
    if (guests_.size() >= kMaxGuests) {
      pushedOut = std::move(guests_.front());
      guests_.pop_front();
    }
    guests_.push_back(std::move(guest));
  }
  if (!added.start().ok()) forget(added);
}

void SocketListener::guestDone(Guest& guest, Status status) noexcept {
  try {
    if (status.ok()) {
      join(guest);
    } else {
      complaint(guest, status);
    }
  } catch (const std::bad_alloc&) {
    // The dialer sees its streams closed and tries again.
  }
  forget(guest);
}

void SocketListener::complaint(const Guest& guest, const Status& status) {
  // Who connects and leaves without a word is a health check or a dialer that gave up: not worth a line.
  if (status.sysErrno() != 0) return;
  {
    const std::lock_guard lock(mutex_);
    if (closing_ || ++complaints_ > kMaxComplaints) return;
  }
  CGX_LOG(Warn, Net, "%s: dropped %s: %s", name_.c_str(), guest.peer().c_str(), status.text().c_str());
}

/// Frees a guest, unless the destructor has taken it.
void SocketListener::forget(Guest& guest) noexcept {
  std::unique_ptr<Guest> gone;
  const std::lock_guard lock(mutex_);
  const auto at = std::find_if(guests_.begin(), guests_.end(), [&](const auto& g) { return g.get() == &guest; });
  if (at == guests_.end()) return;
  gone = std::move(*at);
  guests_.erase(at);
}

void SocketListener::join(Guest& guest) {
  const wire::Hello& hello = guest.handshake().hello();
  SocketConnection::Parts parts;
  {
    const std::lock_guard lock(mutex_);
    if (closing_) return;
    auto party = std::find_if(parties_.begin(), parties_.end(),
                              [&](const Party& p) { return p.connection == hello.connection; });
    if (party == parties_.end()) {
      const auto user = guest.handshake().user();
      party = parties_.insert(parties_.end(), Party{});
      party->connection = hello.connection;
      party->streams.resize(hello.streams);
      party->hello.assign(user.begin(), user.end());
      party->peer = guest.peer();
      party->end = Clock::now() +
                   std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(settings_.connectTimeout));
    }
    if (hello.streams != party->streams.size() || party->streams[hello.stream].valid())
      return;  // makes no sense: drop this stream
    guest.remove();
    party->streams[hello.stream] = guest.takeFd();
    if (++party->present < party->streams.size()) return;
    parts = {std::move(party->streams), std::move(party->peer), std::move(party->hello)};
    parties_.erase(party);
  }
  Result<std::unique_ptr<Connection>> connection = SocketConnection::create(settings_, std::move(parts));
  const std::lock_guard lock(mutex_);
  if (connection.ok()) {
    finished_.push_back(std::move(connection).value());
  } else {
    trouble_ = std::move(connection).status();
  }
}

void SocketListener::tick(Clock::time_point now) noexcept {
  bool retry = false;
  {
    const std::lock_guard lock(mutex_);
    parties_.remove_if([&](const Party& party) { return now > party.end; });
    retry = !trouble_.ok();
  }
  if (retry && takeGuests()) loop_.kick(*this);
}

}  // namespace cgx::transport::socket
