#include "meet.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <sstream>
#include <thread>

namespace cgx::tool {
namespace {

using Clock = std::chrono::steady_clock;
constexpr int kBacklog = 1024;
constexpr auto kHelloTime = std::chrono::seconds(5);     // a stranger who says nothing is dropped after it
constexpr std::size_t kMaxStrangers = 256;               // connections without a hello at one time
constexpr auto kRedial = std::chrono::milliseconds(50);  // rank 0 may start later than the others

struct Addresses {
  addrinfo* first = nullptr;
  Addresses() = default;
  Addresses(const Addresses&) = delete;
  Addresses& operator=(const Addresses&) = delete;
  ~Addresses() {
    if (first != nullptr) ::freeaddrinfo(first);
  }
};

Status resolve(const std::string& host, int port, Addresses* out) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_family = AF_UNSPEC;
  const int error = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &out->first);
  if (error != 0)
    return {Code::System, "the root's address \"" + host + "\" cannot be resolved: " + ::gai_strerror(error)};
  return {};
}

std::string where(const std::string& host, int port) { return host + ":" + std::to_string(port); }

bool isLoopback(const sockaddr* address) {
  if (address->sa_family == AF_INET)
    return (ntohl(reinterpret_cast<const sockaddr_in*>(address)->sin_addr.s_addr) >> 24) == 127;
  return IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr) != 0;
}

/// A host that vanishes without a word must not keep us waiting for more than half a minute.
void keepAlive(int fd) {
  const int on = 1;
  const int idleSeconds = 10;
  const int intervalSeconds = 5;
  const int probes = 4;
  (void)::setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  (void)::setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idleSeconds, sizeof idleSeconds);
  (void)::setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &intervalSeconds, sizeof intervalSeconds);
  (void)::setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
  (void)::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

/// What a rank says first: "rank ranks agreement".
struct Hello {
  int rank = -1;
  int ranks = 0;
  std::string agreement;
};

std::string helloText(const Meeting& meeting) {
  return std::to_string(meeting.rank) + " " + std::to_string(meeting.ranks) + " " + meeting.agreement;
}

bool parseHello(const std::string& text, Hello* out) {
  std::istringstream in(text);
  if (!(in >> out->rank >> out->ranks) || in.get() != ' ') return false;
  std::getline(in, out->agreement, '\0');
  return true;
}

/// Collects the others on rank 0.
class Gathering {
 public:
  explicit Gathering(const Meeting& meeting) : meeting_(meeting) {
    for (int rank = 1; rank < meeting.ranks; ++rank) ranks_.emplace_back(-1);
  }
  ~Gathering() {
    if (listenFd_ >= 0) ::close(listenFd_);
  }
  Gathering(const Gathering&) = delete;
  Gathering& operator=(const Gathering&) = delete;

  Result<std::vector<Link>> run() {
    if (Status status = collect(); !status.ok()) {
      for (Link& link : ranks_)
        if (link.fd() >= 0) (void)link.send(FrameKind::Failed, status.text());
      return status;
    }
    for (Link& link : ranks_) CGX_TRY(link.send(FrameKind::Hello, {}));
    return std::move(ranks_);
  }

 private:
  struct Stranger {
    Link link;
    Clock::time_point deadline;
  };

  Status collect() {
    listenFd_ = meeting_.listenFd;
    if (listenFd_ < 0) {
      int port = meeting_.port;
      Result<int> fd = listenAt(meeting_.host, &port);
      if (!fd.ok()) return fd.status();
      listenFd_ = fd.value();
    }
    const auto deadline = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                             std::chrono::duration<double>(meeting_.timeoutSeconds));
    while (missing() > 0) {
      if (Clock::now() >= deadline) return missed();
      poll();
      accept();
      CGX_TRY(greet());
    }
    return {};
  }

  void poll() {
    std::vector<pollfd> polls{{listenFd_, POLLIN, 0}};
    for (const Stranger& stranger : strangers_) polls.push_back({stranger.link.fd(), POLLIN, 0});
    (void)::poll(polls.data(), polls.size(), 100);
  }

  void accept() {
    while (strangers_.size() < kMaxStrangers) {
      const int fd = ::accept4(listenFd_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
      if (fd < 0) return;
      keepAlive(fd);
      strangers_.push_back({Link(fd), Clock::now() + kHelloTime});
    }
  }

  Status greet() {
    Status verdict;
    std::erase_if(strangers_, [&](Stranger& stranger) {
      stranger.link.pump();
      const auto frame = stranger.link.next();
      if (!frame) return stranger.link.ended() || Clock::now() >= stranger.deadline;
      Hello hello;
      if (frame->kind == FrameKind::Hello && parseHello(frame->text, &hello)) {
        Status said = admit(hello, &stranger.link);
        if (verdict.ok()) verdict = std::move(said);
      }
      return true;
    });
    return verdict;
  }

  Status admit(const Hello& hello, Link* link) {
    const std::string who = "rank " + std::to_string(hello.rank);
    Status why;
    if (hello.ranks != meeting_.ranks) {
      why = Status::invalid(who + " was started for " + std::to_string(hello.ranks) + " ranks, rank 0 for " +
                            std::to_string(meeting_.ranks));
    } else if (hello.rank < 1 || hello.rank >= meeting_.ranks) {
      why = Status::invalid(who + " is none of the " + std::to_string(meeting_.ranks) + " ranks that rank 0 waits for");
    } else if (ranks_[static_cast<std::size_t>(hello.rank - 1)].fd() >= 0) {
      why = Status::invalid("two processes say that they are " + who);
    } else if (hello.agreement != meeting_.agreement) {
      why = Status::invalid(who + " was started with \"" + hello.agreement + "\", rank 0 with \"" + meeting_.agreement +
                            "\"");
    }
    if (!why.ok()) {
      (void)link->send(FrameKind::Failed, why.text());
      return why;
    }
    ranks_[static_cast<std::size_t>(hello.rank - 1)] = std::move(*link);
    return {};
  }

  std::size_t missing() const {
    return static_cast<std::size_t>(
        std::count_if(ranks_.begin(), ranks_.end(), [](const Link& l) { return l.fd() < 0; }));
  }

  Status missed() const {
    std::string names;
    for (std::size_t i = 0; i < ranks_.size(); ++i)
      if (ranks_[i].fd() < 0) names += (names.empty() ? "" : ", ") + std::to_string(i + 1);
    std::ostringstream text;
    text << "rank " << names << " did not come to " << where(meeting_.host, meeting_.port) << " within "
         << meeting_.timeoutSeconds << " s";
    return {Code::Timeout, text.str()};
  }

  const Meeting& meeting_;
  int listenFd_ = -1;
  std::vector<Link> ranks_;  // of rank 1, 2, …; no descriptor: not there yet
  std::vector<Stranger> strangers_;
};

/// One attempt; a descriptor or -1 with errno.
int dial(const addrinfo& address, Clock::time_point deadline) {
  const int fd = ::socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return -1;
  int error = ::connect(fd, address.ai_addr, address.ai_addrlen) == 0 ? 0 : errno;
  if (error == EINPROGRESS) {
    pollfd ready{fd, POLLOUT, 0};
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    socklen_t size = sizeof error;
    if (::poll(&ready, 1, static_cast<int>(std::clamp<long long>(left, 0, 5000))) <= 0)
      error = ETIMEDOUT;
    else
      (void)::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size);
  }
  if (error == 0) return fd;
  ::close(fd);
  errno = error;
  return -1;
}

Result<int> dialUntil(const Meeting& meeting, Clock::time_point deadline) {
  Addresses addresses;
  CGX_TRY(resolve(meeting.host, meeting.port, &addresses));
  for (;;) {
    int error = 0;
    for (const addrinfo* at = addresses.first; at != nullptr; at = at->ai_next) {
      const int fd = dial(*at, deadline);
      if (fd >= 0) return fd;
      error = errno;
    }
    if (Clock::now() + kRedial >= deadline)
      return Status::system("rank 0 does not answer at " + where(meeting.host, meeting.port), error);
    std::this_thread::sleep_for(kRedial);
  }
}

}  // namespace

Result<int> listenAt(const std::string& host, int* port) {
  Addresses addresses;
  CGX_TRY(resolve(host, *port, &addresses));
  const addrinfo& address = *addresses.first;
  const int fd = ::socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return Status::system("opening a socket", errno);
  const int on = 1;
  (void)::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  sockaddr_storage bound{};
  socklen_t size = address.ai_addrlen;
  std::copy_n(reinterpret_cast<const char*>(address.ai_addr), size, reinterpret_cast<char*>(&bound));
  // Other machines may know this one by another address than it does itself, so only loopback is taken literally.
  if (!isLoopback(address.ai_addr)) {
    if (bound.ss_family == AF_INET)
      reinterpret_cast<sockaddr_in*>(&bound)->sin_addr.s_addr = htonl(INADDR_ANY);
    else
      reinterpret_cast<sockaddr_in6*>(&bound)->sin6_addr = in6addr_any;
  }
  if (::bind(fd, reinterpret_cast<sockaddr*>(&bound), size) != 0 || ::listen(fd, kBacklog) != 0) {
    const int error = errno;
    ::close(fd);
    return Status::system(
        "port " + std::to_string(*port) + " cannot be used for the rendezvous (another one: --root host:port)", error);
  }
  (void)::getsockname(fd, reinterpret_cast<sockaddr*>(&bound), &size);
  *port = ntohs(bound.ss_family == AF_INET ? reinterpret_cast<sockaddr_in*>(&bound)->sin_port
                                           : reinterpret_cast<sockaddr_in6*>(&bound)->sin6_port);
  return fd;
}

Result<std::vector<Link>> gatherRanks(const Meeting& meeting) { return Gathering(meeting).run(); }

Result<Link> joinRoot(const Meeting& meeting) {
  const auto deadline =
      Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(meeting.timeoutSeconds));
  Result<int> fd = dialUntil(meeting, deadline);
  if (!fd.ok()) return fd.status();
  keepAlive(fd.value());
  Link link(fd.value());
  CGX_TRY(link.send(FrameKind::Hello, helloText(meeting)));
  // Rank 0 gives up by itself when somebody is missing; a little longer here, so that its reason arrives.
  while (Clock::now() < deadline + std::chrono::seconds(5)) {
    const bool alive = link.pump();
    if (const auto frame = link.next()) {
      if (frame->kind == FrameKind::Hello) return link;
      return Status::remote(frame->text);
    }
    if (!alive)
      return Status::remote("whoever answers at " + where(meeting.host, meeting.port) +
                            " is not rank 0 of this cgx command, or it ended");
    pollfd ready{link.fd(), POLLIN, 0};
    (void)::poll(&ready, 1, 100);
  }
  return Status(Code::Timeout,
                "rank 0 at " + where(meeting.host, meeting.port) + " waits for other ranks for too long");
}

}  // namespace cgx::tool
