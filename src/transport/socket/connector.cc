// The list of errors worth a retry is at isTransient; everything else is final at once.
#include "transport/socket/connector.h"

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

#include "transport/socket/connection.h"
#include "transport/socket/socket_stream.h"

namespace cgx::transport::socket {
namespace {

constexpr auto kFirstBackoff = std::chrono::milliseconds(20);
constexpr auto kLongestBackoff = std::chrono::seconds(1);

/// What may pass: the peer's process is not up yet, a switch port comes up, ports or queues are briefly exhausted.
bool isTransient(int sysErrno) {
  switch (sysErrno) {
    case ECONNREFUSED:
    case EADDRNOTAVAIL:
    case EADDRINUSE:
    case EAGAIN:
      return true;
    default:
      return isPeerLoss(sysErrno);
  }
}

Clock::duration limitOf(const Settings& settings, const ConnectOptions& options) {
  if (options.timeout > Clock::duration::zero()) return options.timeout;
  return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(settings.connectTimeout));
}

std::string nameOf(const Route& route, const ConnectOptions& options) {
  return options.peerName.empty() ? route.to.text() : options.peerName + " at " + route.to.text();
}

/// On loopback a dialer can be given the very port that it dials, and then meets itself.
bool isSelfConnected(int fd) {
  const Address local = localAddress(fd);
  const Address peer = peerAddress(fd);
  return local.port() == peer.port() && local.sameHost(peer);
}

}  // namespace

SocketConnector::SocketConnector(const Settings& settings, Route route, const wire::Handle& handle,
                                 const ConnectOptions& options, std::size_t streams)
    : settings_(settings),
      route_(std::move(route)),
      nonce_(handle.nonce),
      role_(options.role),
      hello_(options.hello.begin(), options.hello.end()),
      peer_(nameOf(route_, options)),
      end_(Clock::now() + limitOf(settings, options)),
      lines_(streams),
      backoff_(kFirstBackoff) {}

Status SocketConnector::progress() {
  for (;;) {
    switch (state_) {
      case State::Start: {
        const Status started = start();
        if (started.failed()) return fail(started);
        state_ = State::Dialing;
        break;
      }
      case State::Dialing: {
        Status status = advance();
        if (status.isPending()) return Clock::now() < end_ ? status : expired();
        if (status.ok()) status = assemble();
        if (status.ok()) return state_ = State::Ready, Status();
        if (!isTransient(status.sysErrno())) return fail(std::move(status));
        last_ = std::move(status);
        for (Line& line : lines_) line = {};
        retryAt_ = std::min(Clock::now() + backoff_, end_);
        backoff_ = std::min<Clock::duration>(backoff_ * 2, kLongestBackoff);
        state_ = State::Backoff;
        break;
      }
      case State::Backoff:
        if (Clock::now() < retryAt_) return Status::pending();
        if (Clock::now() >= end_) return expired();
        state_ = State::Start;
        break;
      case State::Ready:
        return {};
      case State::Failed:
        return last_;
    }
  }
}

Status SocketConnector::start() {
  Result<Nonce> id = randomNonce();
  if (!id.ok()) return std::move(id).status();
  for (std::size_t i = 0; i < lines_.size(); ++i) {
    lines_[i] = {};
    lines_[i].handshake.emplace(Introduction{nonce_, id.value(), role_, static_cast<std::uint16_t>(i),
                                             static_cast<std::uint16_t>(lines_.size()), hello_});
  }
  return {};
}

Status SocketConnector::advance() {
  Status all;
  for (Line& line : lines_) {
    Status status = advance(line);
    if (status.failed()) return status;
    if (status.isPending()) all = Status::pending();
  }
  return all;
}

Status SocketConnector::advance(Line& line) {
  if (line.welcome) return {};
  if (!line.fd.valid()) CGX_TRY(dial(line));
  if (!line.connected) {
    pollfd ask{line.fd.get(), POLLOUT, 0};
    if (retryEintr([&] { return ::poll(&ask, 1, 0); }) <= 0) return Status::pending();
    int failed = 0;
    socklen_t length = sizeof failed;
    if (::getsockopt(line.fd.get(), SOL_SOCKET, SO_ERROR, &failed, &length) != 0) failed = errno;
    if (failed == 0 && isSelfConnected(line.fd.get())) failed = ECONNREFUSED;
    if (failed != 0) return Status::system("connect", failed);
    line.connected = true;
  }
  SocketStream stream(line.fd.get());
  CGX_TRY(line.handshake->progress(stream));
  line.welcome = true;
  return {};
}

Status SocketConnector::dial(Line& line) {
  Result<Fd> fd = openSocket(route_.to.family());
  if (!fd.ok()) return std::move(fd).status();
  line.fd = std::move(fd).value();
  tune(line.fd.get(), settings_);
  if (!route_.from.empty()) {
    // The port is chosen at connect, when the kernel knows the whole four-tuple, so that many dialers do not run out of
    // ports.
    const int on = 1;
    (void)::setsockopt(line.fd.get(), IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &on, sizeof on);
    if (::bind(line.fd.get(), route_.from.get(), route_.from.length()) != 0) {
      return Status::system("bind to " + route_.from.host() + " of " + route_.device, errno);
    }
  }
  // With EINTR the kernel goes on connecting, as with EINPROGRESS.
  if (::connect(line.fd.get(), route_.to.get(), route_.to.length()) == 0 || errno == EINPROGRESS || errno == EINTR)
    return {};
  return Status::system("connect", errno);
}

Status SocketConnector::assemble() {
  SocketConnection::Parts parts;
  parts.peer = peer_;
  for (Line& line : lines_) parts.streams.push_back(std::move(line.fd));
  Result<std::unique_ptr<Connection>> connection = SocketConnection::create(settings_, std::move(parts));
  if (!connection.ok()) return std::move(connection).status();
  ready_ = std::move(connection).value();
  return {};
}

Status SocketConnector::expired() {
  const std::string limit = "no connection within CGX_CONNECT_TIMEOUT";
  if (last_.ok()) return fail(Status(Code::Timeout, limit + ": no answer", ETIMEDOUT));
  return fail(Status(Code::System, limit + ", last: " + last_.text(), last_.sysErrno()));
}

Status SocketConnector::fail(Status why) {
  const std::string from = route_.from.empty() ? route_.device : route_.device + " (" + route_.from.host() + ")";
  last_ = std::move(why).within("connect to " + peer_ + " from " + from);
  lines_.clear();
  state_ = State::Failed;
  return last_;
}

}  // namespace cgx::transport::socket
