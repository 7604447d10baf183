// See stream.h; the rule that no wake-up is lost is argued at pump().
#include "transport/socket/stream.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <cerrno>
#include <string>

#include "transport/socket/socket_stream.h"

namespace cgx::transport::socket {
namespace {

// What the loop writes on one stream before others have their turn.
constexpr std::size_t kTurnBytes = 4 << 20;

}  // namespace

Stream::Stream(Owner& owner, Exchange& exchange, std::size_t index, Loop& loop, Fd fd,
               const Settings& settings) noexcept
    : owner_(owner),
      exchange_(exchange),
      loop_(loop),
      index_(index),
      checksum_(settings.checksum),
      reader_(index),
      silence_(settings),
      fd_(std::move(fd)) {}

bool Stream::wantsWrite() const noexcept {
  if (exchange_.stopped()) return false;
  if (blocked_.load()) return writable_.load();
  return pausing_.load() || heartbeatDue_.load() || exchange_.hasWork(index_);
}

bool Stream::pump(std::size_t budgetBytes) noexcept {
  // Both exchanges of pumping_ are read-modify-write: whoever loses the race has queued its work before, and the
  // winner, whose own exchange comes later in the flag's order, sees that work in wantsWrite().
  while (wantsWrite()) {
    if (pumping_.exchange(true)) return true;
    Told told;
    Pumped result;
    {
      const std::lock_guard lock(writing_);
      result = write(budgetBytes, told);
      // What the outbox holds is no longer in the exchange: without this nobody would come back for it.
      pausing_.store(result == Pumped::Budget && !outbox_.empty());
    }
    told.tell({});
    (void)pumping_.exchange(false);
    if (result == Pumped::Failed) {
      const Status why = Status::system("write", writeErrno_);
      owner_.streamFailed(why, {wire::FrameType::Bye, {}, why.text()});
      return false;
    }
    if (result == Pumped::Dead) return false;
    if (result == Pumped::Budget) {
      loop_.kick(*this);
      return true;
    }
  }
  return !blocked_.load();
}

void Stream::pumpOnLoop() noexcept {
  if (loop_.isOwnThread()) {
    pump(kTurnBytes);
  } else {
    pumpLater();
  }
}

Stream::Pumped Stream::write(std::size_t budgetBytes, Told& told) noexcept {
  for (std::size_t spent = 0;;) {
    if (exchange_.stopped() || writeDead_) return Pumped::Dead;
    fill();
    if (outbox_.empty()) return Pumped::Idle;
    writable_.store(false);
    const ssize_t n = sendOutbox();
    if (n < 0) return writeFailed(errno);
    blocked_.store(false);
    wrote_.store(true, std::memory_order_relaxed);  // read by tick(), which minds no delay
    spent += static_cast<std::size_t>(n);
    outbox_.advance(static_cast<std::size_t>(n), [&](const Chunk& chunk) { told.add(exchange_.written(chunk)); });
    if (spent >= budgetBytes || told.lacksRoom(Outbox::kFrames)) return Pumped::Budget;
  }
}

Stream::Pumped Stream::writeFailed(int sysErrno) noexcept {
  switch (sysErrno) {
    case EAGAIN:
    case ENOBUFS:
    case ENOMEM:
      blocked_.store(true);  // no event follows the last two: tick() retries
      return Pumped::Blocked;
    default:
      break;
  }
  writeDead_ = true;
  writeErrno_ = sysErrno;
  // What the peer sent before it went is still to be read; the reader will come to the same end and report it.
  return isPeerLoss(sysErrno) ? Pumped::Dead : Pumped::Failed;
}

void Stream::fill() noexcept {
  std::array<wire::PostedSlot, kMaxGroup> slots;
  std::size_t count = 0;
  while (index_ == 0 && !outbox_.full()) {
    const auto receive = exchange_.announce(slots, count);
    if (!receive) break;
    outbox_.addPosted(*receive, std::span(slots).first(count));
  }
  while (!outbox_.full()) {
    const auto chunk = exchange_.nextChunk();
    if (!chunk) break;
    outbox_.addData(*chunk, checksum_);
  }
  if (heartbeatDue_.exchange(false) && outbox_.empty()) outbox_.addHeartbeat();
}

ssize_t Stream::sendOutbox() noexcept {
  std::array<iovec, 2 * Outbox::kFrames> parts;
  msghdr message{};
  message.msg_iov = parts.data();
  message.msg_iovlen = outbox_.gather(parts);
  return retryEintr([&] { return ::sendmsg(fd_.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT); });
}

bool Stream::ready(std::uint32_t events) noexcept {
  if ((events & EPOLLOUT) != 0) {
    writable_.store(true);
    pump(kTurnBytes);
  }
  if ((events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0) toTheEnd_ = true;
  return (toTheEnd_ || (events & EPOLLIN) != 0) && readMore();
}

bool Stream::resumed() noexcept {
  pump(kTurnBytes);
  return readAgain_ && readMore();
}

/// What the completions post (the next receive, an answer) is written when all were told, so that it leaves in one
/// call.
void Stream::tellReceived(Told& told) noexcept {
  if (told.empty()) return;
  const bool held = !pumping_.exchange(true);
  told.tell({});
  if (!held) return;
  (void)pumping_.exchange(false);
  pump(kTurnBytes);
}

bool Stream::readMore() noexcept {
  Told told;
  Reading reading;
  {
    const std::lock_guard lock(reading_);
    if (readEnded_ || exchange_.stopped()) return readAgain_ = false;
    reading = reader_.step(fd_.get(), toTheEnd_, exchange_, told);
    readEnded_ = reading.what == Reading::What::Ended;
  }
  tellReceived(told);
  if (reading.announced) owner_.sendsMatched();
  switch (reading.what) {
    case Reading::What::Blocked:
      return readAgain_ = false;
    case Reading::What::More:
      break;
    case Reading::What::Ended:
      owner_.streamEnded(std::move(reading.status), reading.clean);
      break;
    case Reading::What::Broken: {
      const Farewell farewell{wire::FrameType::Bye, {}, reading.status.text()};
      owner_.streamFailed(std::move(reading.status), farewell);
      break;
    }
    case Reading::What::TooLong:
      owner_.streamFailed(std::move(reading.status), {wire::FrameType::TooLong, reading.misfit, {}});
      break;
  }
  return readAgain_ = reading.what == Reading::What::More;
}

void Stream::tick(Clock::time_point now) noexcept {
  if (exchange_.stopped()) return;
  owner_.streamTick(now);
  if (blocked_.load()) writable_.store(true);
  if (silence_.heartbeatDue(wrote_.exchange(false, std::memory_order_relaxed), now)) heartbeatDue_.store(true);
  pump(kTurnBytes);
  if (silence_.look(fd_.get()) != SilenceWatch::Verdict::Dead) return;
  {
    const std::lock_guard lock(reading_);
    if (std::exchange(readEnded_, true)) return;
  }
  owner_.streamEnded(
      Status(Code::Remote, "the peer's host is silent: nothing acknowledged within CGX_PEER_TIMEOUT", ETIMEDOUT),
      false);
}

void Stream::quiesce() noexcept {
  { const std::lock_guard lock(reading_); }
  { const std::lock_guard lock(writing_); }
}

void Stream::sayGoodbye(const Farewell& farewell) noexcept {
  const std::lock_guard lock(writing_);
  if (!fd_.valid()) return;
  if (!writeDead_ && !outbox_.midFrame()) {
    outbox_.clear();
    outbox_.addFarewell(farewell);
    (void)sendOutbox();
  }
  outbox_.clear();
  writeDead_ = true;
  // Unlike close(), it reaches the peer although a child of a fork still holds a copy of the descriptor.
  ::shutdown(fd_.get(), SHUT_WR);
}

Fd Stream::detach() noexcept {
  loop_.remove(*this, fd_.get());
  const std::lock_guard lock(writing_);
  const std::lock_guard lockToo(reading_);
  return std::move(fd_);
}

}  // namespace cgx::transport::socket
