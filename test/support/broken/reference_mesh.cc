#include "broken/reference_mesh.h"

#include <poll.h>

#include <algorithm>

namespace cgx::broken {
namespace {

struct Hello {
  std::uint64_t magic = kMagic;
  std::int64_t rank = 0;
};

bool untilReadable(int fd, Clock::time_point deadline) {
  pollfd p{fd, POLLIN, 0};
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
  return left > 0 && poll(&p, 1, static_cast<int>(left)) == 1;
}

bool receiveAll(int fd, void* data, std::size_t size, Clock::time_point deadline) {
  std::size_t done = 0;
  while (done < size) {
    if (!untilReadable(fd, deadline)) return false;
    if (recvSome(fd, data, size, &done) == Io::Lost) return false;
  }
  return true;
}

Operation* find(Comm& comm, std::uint64_t sequence) {
  for (auto& op : comm.operations)
    if (op->sequence == sequence) return op.get();
  return nullptr;
}

void sendTo(Comm& comm, std::size_t peer) {
  for (auto& op : comm.operations) {
    const Frame frame{op->sequence, op->mine.size()};
    Io io = sendSome(comm.peers[peer].fd, &frame, sizeof frame, &op->headerSent[peer]);
    if (io == Io::Moved) io = sendSome(comm.peers[peer].fd, op->mine.data(), op->mine.size(), &op->dataSent[peer]);
    if (io == Io::Lost) comm.lost = true;
    if (io != Io::Moved) return;
  }
}

/// A peer that has left is a loss only for operations that still want something of it: it may be done earlier.
bool wanted(const Comm& comm, std::size_t peer) {
  return std::any_of(comm.operations.begin(), comm.operations.end(),
                     [peer](const auto& op) { return !op->arrived[peer]; });
}

void receiveFrom(Comm& comm, std::size_t peer) {
  Peer& p = comm.peers[peer];
  for (;;) {
    Io io = recvSome(p.fd, &p.frame, sizeof p.frame, &p.frameDone);
    Operation* op = io == Io::Moved ? find(comm, p.frame.sequence) : nullptr;
    if (io == Io::Moved && !op) return;  // not posted here yet
    if (io == Io::Moved) {
      auto& in = op->theirs[peer];
      in.resize(p.frame.size);
      io = recvSome(p.fd, in.data(), in.size(), &p.dataDone);
    }
    if (io == Io::Lost && wanted(comm, peer)) comm.lost = true;
    if (io != Io::Moved) return;
    op->arrived[peer] = true;
    p.frameDone = p.dataDone = 0;
  }
}

}  // namespace

bool meet(Comm& comm, void* handles[], Listener& listener, Clock::time_point deadline) {
  for (int r = 0; r < comm.rank; ++r) {
    const int fd = dial(handles[r]);
    if (fd < 0) return false;
    comm.peers[static_cast<std::size_t>(r)].fd = fd;
    const Hello hello{kMagic, comm.rank};
    if (send(fd, &hello, sizeof hello, MSG_NOSIGNAL) != sizeof hello) return false;
  }
  for (int missing = comm.ranks - comm.rank - 1; missing > 0;) {
    if (!untilReadable(listener.fd, deadline)) return false;
    const int fd = accept4(listener.fd, nullptr, nullptr, SOCK_CLOEXEC);
    Hello hello{0, -1};
    if (fd < 0) continue;
    if (!receiveAll(fd, &hello, sizeof hello, deadline) || hello.magic != kMagic || hello.rank <= comm.rank ||
        hello.rank >= comm.ranks) {
      close(fd);
      continue;
    }
    const int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    comm.peers[static_cast<std::size_t>(hello.rank)].fd = fd;
    --missing;
  }
  // All have met; each says so to each, so that nobody goes on alone.
  for (Peer& p : comm.peers)
    if (p.fd >= 0 && send(p.fd, "!", 1, MSG_NOSIGNAL) != 1) return false;
  for (Peer& p : comm.peers) {
    char yes = 0;
    if (p.fd >= 0 && !receiveAll(p.fd, &yes, 1, deadline)) return false;
  }
  return true;
}

void destroy(Comm* comm) {
  for (const Peer& p : comm->peers)
    if (p.fd >= 0) close(p.fd);
  delete comm;
}

void progress(Comm& comm) {
  for (std::size_t r = 0; r < comm.peers.size() && !comm.lost; ++r) {
    if (comm.peers[r].fd < 0) continue;
    sendTo(comm, r);
    receiveFrom(comm, r);
  }
}

bool complete(const Operation& op) {
  for (std::size_t r = 0; r < op.arrived.size(); ++r) {
    if (static_cast<int>(r) == op.comm->rank) continue;
    if (!op.arrived[r] || op.dataSent[r] < op.mine.size() || op.headerSent[r] < sizeof(Frame)) return false;
  }
  return !is(Defect::NeverCompletes) || op.sequence < 3;
}

}  // namespace cgx::broken
