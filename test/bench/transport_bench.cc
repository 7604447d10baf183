// Throughput and latency of the socket transport over loopback, next to plain TCP sockets doing the same in the same
// run. Two processes; ratios are what counts, machines differ. Usage: transport_bench [--quick] [--iperf] [STREAMS
// BYTES]
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "cgx/transport.h"

namespace {

using namespace cgx;
using namespace cgx::transport;

double seconds(Clock::time_point from) { return std::chrono::duration<double>(Clock::now() - from).count(); }

[[noreturn]] void die(const std::string& what) {
  std::fprintf(stderr, "transport_bench: %s\n", what.c_str());
  std::_Exit(1);
}

void check(const Status& status) {
  if (status.failed()) die(status.text());
}

struct Waiter : Completion {
  Waiter() {
    done = [](Completion* self, const Status& status) noexcept {
      if (!status.ok()) die(status.text());
      static_cast<Waiter*>(self)->told.store(true, std::memory_order_release);
    };
  }
  void wait() {
    while (!told.load(std::memory_order_acquire)) std::this_thread::sleep_for(std::chrono::microseconds(20));
    told = false;
  }
  std::atomic<bool> told{false};
};

Settings settingsFor(int streams) {
  Settings settings;
  settings.ifname = "lo";
  settings.streams = streams;
  settings.checksum = std::getenv("CGX_BENCH_NO_CHECKSUM") == nullptr;
  return settings;
}

void readAll(int fd, void* data, std::size_t bytes) {
  for (auto* at = static_cast<char*>(data); bytes > 0;) {
    const ssize_t n = ::read(fd, at, bytes);
    if (n <= 0) die("read");
    at += n, bytes -= static_cast<std::size_t>(n);
  }
}

void writeAll(int fd, const void* data, std::size_t bytes) {
  for (auto* at = static_cast<const char*>(data); bytes > 0;) {
    const ssize_t n = ::write(fd, at, bytes);
    if (n <= 0) die("write");
    at += n, bytes -= static_cast<std::size_t>(n);
  }
}

/// Runs `child` in another process, with a pipe each way for what the two have to tell each other.
template <class Child, class Parent>
void inTwoProcesses(Child child, Parent parent) {
  int down[2], up[2];
  if (::pipe(down) != 0 || ::pipe(up) != 0) die("pipe");
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::close(down[1]), ::close(up[0]);
    child(down[0], up[1]);
    std::_Exit(0);
  }
  ::close(down[0]), ::close(up[1]);
  parent(up[0], down[1]);
  ::waitpid(pid, nullptr, 0);
  ::close(up[0]), ::close(down[1]);
}

std::unique_ptr<Connection> accept(Transport& transport, int up) {
  auto listener = transport.listen(0, Role::Net);
  check(listener.status());
  writeAll(up, listener.value()->handle().data(), kHandleBytes);
  for (;;) {
    auto connection = listener.value()->accept();
    check(connection.status());
    if (connection.ok()) return std::move(connection).value();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

std::unique_ptr<Connection> dial(Transport& transport, int up) {
  Handle handle;
  readAll(up, handle.data(), kHandleBytes);
  auto connector = transport.connect(0, handle, {});
  check(connector.status());
  for (;;) {
    const Status status = connector.value()->progress();
    check(status);
    if (status.ok()) return connector.value()->take();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

struct Load {
  std::size_t bytes;  // of one message
  std::size_t count;
};

/// Four messages in flight, as NCCL's proxy has. GB/s.
double ours(int streams, Load load) {
  double rate = 0;
  inTwoProcesses(
      [&](int, int up) {
        auto transport = createSocket(settingsFor(streams));
        check(transport.status());
        auto connection = accept(*transport.value(), up);
        std::vector<std::vector<std::byte>> room(4, std::vector<std::byte>(load.bytes));
        std::deque<Waiter> got(4);
        writeAll(up, "r", 1);
        for (std::size_t i = 0; i < load.count + 4; ++i) {
          if (i >= 4) got[i % 4].wait();
          const Slot slot{room[i % 4], 0};
          if (i < load.count) check(connection->recv({&slot, 1}, got[i % 4]));
        }
        writeAll(up, "k", 1);
        char end;
        Waiter last;
        const Slot slot{std::as_writable_bytes(std::span(&end, 1)), 0};
        check(connection->recv({&slot, 1}, last));
        last.wait();
      },
      [&](int up, int) {
        auto transport = createSocket(settingsFor(streams));
        check(transport.status());
        auto connection = dial(*transport.value(), up);
        const std::vector<std::byte> data(load.bytes, std::byte{1});
        std::deque<Waiter> sent(4);
        char ready;
        readAll(up, &ready, 1);
        const auto begin = Clock::now();
        for (std::size_t i = 0; i < load.count + 4; ++i) {
          if (i >= 4) sent[i % 4].wait();
          if (i < load.count) check(connection->send(data, 0, Priority::Normal, sent[i % 4]));
        }
        char end;
        readAll(up, &end, 1);
        rate = static_cast<double>(load.bytes * load.count) / seconds(begin) / 1e9;
        Waiter last;
        check(connection->send(std::as_bytes(std::span(&end, 1)), 0, Priority::Normal, last));
        last.wait();
      });
  return rate;
}

struct Pair {
  int listener;
  sockaddr_in address;
};

Pair plainListener() {
  Pair pair{::socket(AF_INET, SOCK_STREAM, 0), {}};
  pair.address.sin_family = AF_INET;
  pair.address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof pair.address;
  if (::bind(pair.listener, reinterpret_cast<sockaddr*>(&pair.address), length) != 0 ||
      ::listen(pair.listener, 64) != 0)
    die("listen");
  ::getsockname(pair.listener, reinterpret_cast<sockaddr*>(&pair.address), &length);
  return pair;
}

int plainDial(const Pair& pair) {
  const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
  const int on = 1;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  if (::connect(fd, reinterpret_cast<const sockaddr*>(&pair.address), sizeof pair.address) != 0) die("connect");
  return fd;
}

int plainAccept(const Pair& pair) {
  const int fd = ::accept(pair.listener, nullptr, nullptr);
  const int on = 1;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  return fd;
}

/// Blocking sockets and one thread for each stream at both ends, each moving its share of every message.
double plain(int streams, Load load) {
  double rate = 0;
  const Pair pair = plainListener();
  const std::size_t share = std::max<std::size_t>(load.bytes / static_cast<std::size_t>(streams), 1);
  inTwoProcesses(
      [&](int, int up) {
        std::vector<int> fds;
        for (int i = 0; i < streams; ++i) fds.push_back(plainAccept(pair));
        std::vector<std::thread> threads;
        std::vector<std::vector<char>> rooms(fds.size(), std::vector<char>(share));
        writeAll(up, "r", 1);
        for (std::size_t n = 0; n < fds.size(); ++n) {
          threads.emplace_back([&, n] {
            const int fd = fds[n];
            std::vector<char>& room = rooms[n];
            for (std::size_t i = 0; i < load.count; ++i) readAll(fd, room.data(), share);
          });
        }
        for (std::thread& thread : threads) thread.join();
        writeAll(up, "k", 1);
      },
      [&](int up, int) {
        std::vector<int> fds;
        for (int i = 0; i < streams; ++i) fds.push_back(plainDial(pair));
        std::vector<std::thread> threads;
        const std::vector<char> data(share, 1);
        char ready;
        readAll(up, &ready, 1);
        const auto begin = Clock::now();
        for (const int fd : fds) {
          threads.emplace_back([&, fd] {
            for (std::size_t i = 0; i < load.count; ++i) writeAll(fd, data.data(), share);
          });
        }
        for (std::thread& thread : threads) thread.join();
        char end;
        readAll(up, &end, 1);
        rate = static_cast<double>(share * static_cast<std::size_t>(streams) * load.count) / seconds(begin) / 1e9;
        for (const int fd : fds) ::close(fd);
      });
  ::close(pair.listener);
  return rate;
}

constexpr int kRounds = 5000;

double median(std::vector<double>& values) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

/// Answers each message from the completion of its receive.
struct Echo : Completion {
  explicit Echo(Connection& c) : connection(c) {
    done = [](Completion* self, const Status& status) noexcept { static_cast<Echo*>(self)->received(status); };
  }
  void receive() {
    const Slot slot{memory, 0};
    check(connection.recv({&slot, 1}, *this));
  }
  void received(const Status& status) {
    if (!status.ok()) return finished.store(true);
    if (measure) times.push_back(seconds(begin) * 1e6);
    const bool last = static_cast<int>(++count) == kRounds;
    if (!last) receive();
    begin = Clock::now();
    if (!last || !measure) check(connection.send(memory, 0, Priority::Normal, out[count % 2]));
    if (last) finished.store(true);
  }
  Connection& connection;
  std::array<std::byte, 8> memory{};
  std::array<Waiter, 2> out;
  std::size_t count = 0;
  bool measure = false;
  Clock::time_point begin;
  std::vector<double> times;
  std::atomic<bool> finished{false};
};

/// Half of what a round trip of eight bytes takes, in microseconds, median.
double ourPingPong() {
  double result = 0;
  inTwoProcesses(
      [&](int, int up) {
        auto transport = createSocket(settingsFor(2));
        check(transport.status());
        auto connection = accept(*transport.value(), up);
        Echo echo(*connection);
        echo.receive();
        while (!echo.finished) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        connection->close({});
      },
      [&](int up, int) {
        auto transport = createSocket(settingsFor(2));
        check(transport.status());
        auto connection = dial(*transport.value(), up);
        Echo echo(*connection);
        echo.measure = true;
        echo.receive();
        echo.begin = Clock::now();
        check(connection->send(echo.memory, 0, Priority::Normal, echo.out[0]));
        while (!echo.finished) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        connection->close({});
        result = median(echo.times) / 2;
      });
  return result;
}

double plainPingPong() {
  double result = 0;
  const Pair pair = plainListener();
  inTwoProcesses(
      [&](int, int) {
        const int fd = plainAccept(pair);
        char data[8];
        for (int i = 0; i < kRounds; ++i) {
          readAll(fd, data, sizeof data);
          writeAll(fd, data, sizeof data);
        }
      },
      [&](int, int) {
        const int fd = plainDial(pair);
        char data[8] = {};
        std::vector<double> times;
        for (int i = 0; i < kRounds; ++i) {
          const auto begin = Clock::now();
          writeAll(fd, data, sizeof data);
          readAll(fd, data, sizeof data);
          times.push_back(seconds(begin) * 1e6);
        }
        ::close(fd);
        result = median(times) / 2;
      });
  ::close(pair.listener);
  return result;
}

/// GB/s of iperf3 with as many streams, 0 when it is not installed.
double iperf(int streams) {
  const std::string port = std::to_string(15000 + ::getpid() % 10000);
  const std::string command = "iperf3 -s -1 -p " + port + " >/dev/null 2>&1 & sleep 0.5; iperf3 -c 127.0.0.1 -p " +
                              port + " -t 2 -f g -P " + std::to_string(streams) +
                              " 2>/dev/null | grep -E 'receiver' | tail -1 | sed -E 's/.* ([0-9.]+) Gbits.*/\\1/'";
  FILE* pipe = ::popen(command.c_str(), "r");
  double gigabits = 0;
  if (pipe == nullptr) return 0;
  if (std::fscanf(pipe, "%lf", &gigabits) != 1) gigabits = 0;
  ::pclose(pipe);
  return gigabits / 8;
}

}  // namespace

int main(int argc, char** argv) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  bool quick = false, withIperf = false;
  std::vector<std::size_t> numbers;
  for (int i = 1; i < argc; ++i) {
    quick |= std::strcmp(argv[i], "--quick") == 0;
    withIperf |= std::strcmp(argv[i], "--iperf") == 0;
    if (argv[i][0] != '-') numbers.push_back(std::strtoull(argv[i], nullptr, 10));
  }
  const double pong = ourPingPong(), plainPong = plainPingPong();
  std::printf("8-byte ping-pong, one way, median: ours %.1f us, plain TCP %.1f us, ratio %.2f\n", pong, plainPong,
              pong / plainPong);
  // iperf3 up to 3.15 serves all streams from one thread, as one progress thread does; plain has a thread a stream.
  std::printf("%8s %12s %10s %12s %10s %8s %8s\n", "streams", "bytes", "ours GB/s", "iperf3 GB/s", "plain GB/s",
              "/iperf3", "/plain");
  std::vector<std::size_t> sizes{64 << 10, 1 << 20, 16 << 20, 64 << 20};
  if (!quick) {
    sizes = {64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20, 32 << 20, 64 << 20, 128 << 20, 256 << 20, 1 << 30};
  }
  std::vector<int> streamCounts{1, 2};
  if (!quick) streamCounts = {1, 2, 4, 8};
  if (numbers.size() == 2) {
    streamCounts = {static_cast<int>(numbers[0])};
    sizes = {numbers[1]};
  }
  for (const int streams : streamCounts) {
    for (const std::size_t bytes : sizes) {
      const std::size_t total = quick ? std::size_t{256} << 20 : std::size_t{2} << 30;
      const Load load{bytes, std::max<std::size_t>(total / bytes, 4)};
      const double mine = ours(streams, load);
      const double tool =
          withIperf ? iperf(streams) : 0;  // next to each figure: the machine's mood changes by the minute
      const double theirs = plain(streams, load);
      std::printf("%8d %12zu %10.2f %12.2f %10.2f %8.2f %8.2f\n", streams, bytes, mine, tool, theirs,
                  tool > 0 ? mine / tool : 0, mine / theirs);
    }
  }
  return 0;
}
