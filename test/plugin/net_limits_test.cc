// The library where something runs out or goes wrong: descriptors, memory, peers; and what it costs over time.
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>

#include "test/plugin/net_driver.h"
#include "test/plugin/process.h"

namespace {

thread_local long allocationsLeft = -1;  // before the one that fails; -1: none does

}  // namespace

#ifndef CGX_SANITIZED
// The library's malloc is this one, as the program comes first in symbol search.
extern "C" void* __libc_malloc(std::size_t bytes);
extern "C" void* malloc(std::size_t bytes) {
  if (allocationsLeft >= 0 && --allocationsLeft < 0) return nullptr;
  return __libc_malloc(bytes);
}
#endif

namespace cgx::test {
namespace {

using Net = NetDriver<ncclNet_v12_t>;
using Clock = std::chrono::steady_clock;

class NetLimits : public ::testing::Test {
 protected:
  void SetUp() override {
    Captured::clear();
    ASSERT_EQ(net_.init(), ncclSuccess);
  }
  void TearDown() override { EXPECT_EQ(net_.finalize(), ncclSuccess); }
  void exchange(void* sendComm, void* recvComm) {
    char out = 'x';
    char in = 0;
    void* receive = nullptr;
    void* send = nullptr;
    ASSERT_EQ(net_.irecv(recvComm, {{&in, 1}}, {0}, &receive), ncclSuccess);
    ASSERT_EQ(net_.isend(sendComm, &out, 1, 0, &send), ncclSuccess);
    ASSERT_TRUE(net_.wait(receive));
    ASSERT_TRUE(net_.wait(send));
    ASSERT_EQ(in, 'x');
  }

  Library library_{CGX_LIBRARY};
  Net net_{library_};
};

#ifndef CGX_SANITIZED  // UBSan's own checks need a descriptor
TEST_F(NetLimits, WithoutDescriptorsLeftItSaysSoAndWhatThereIsGoesOn) {
  rlimit old{};
  getrlimit(RLIMIT_NOFILE, &old);
  const rlimit low{static_cast<rlim_t>(descriptors() + 60), old.rlim_max};
  std::vector<std::pair<void*, void*>> comms;
  ncclResult_t result = ncclSuccess;
  void* sendComm = nullptr;
  void* recvComm = nullptr;
  Net::Handle handle{};
  void* listener = nullptr;
  ASSERT_TRUE(net_.pair(&sendComm, &recvComm));
  comms.emplace_back(sendComm, recvComm);
  ASSERT_EQ(net_.listen(0, handle.data(), &listener), ncclSuccess);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &low), 0);
  const auto start = Clock::now();
  for (void* last = nullptr; result == ncclSuccess && Clock::now() - start < std::chrono::seconds(20);) {
    void* comm = nullptr;
    result = net_.connect(0, handle.data(), &comm);
    if (result == ncclSuccess && last == nullptr) result = net_.accept(listener, &last);
    if (comm != nullptr) comms.emplace_back(comm, nullptr);
    if (last != nullptr) comms.emplace_back(nullptr, last), last = nullptr;
  }
  EXPECT_EQ(result, ncclSystemError);
  const auto warnings = Captured::take(NCCL_LOG_WARN);
  EXPECT_TRUE(std::any_of(warnings.begin(), warnings.end(), [](const std::string& line) {
    return line.find("open files") != std::string::npos;
  })) << (warnings.empty() ? "no warning" : warnings[0]);
  EXPECT_LT(warnings.size(), 5U);
  exchange(comms[0].first, comms[0].second);
  for (auto [send, recv] : comms) {
    EXPECT_EQ(net_.table->closeSend(send), ncclSuccess);
    EXPECT_EQ(net_.table->closeRecv(recv), ncclSuccess);
  }
  EXPECT_EQ(net_.table->closeListen(listener), ncclSuccess);
  ASSERT_TRUE(net_.pair(&sendComm, &recvComm));
  exchange(sendComm, recvComm);
  EXPECT_EQ(net_.table->closeSend(sendComm), ncclSuccess);
  EXPECT_EQ(net_.table->closeRecv(recvComm), ncclSuccess);
  setrlimit(RLIMIT_NOFILE, &old);
}

TEST_F(NetLimits, AnAllocationThatFailsIsAnErrorAndNoCrashOrLeak) {
  const int before = descriptors();
  for (long n = 0; n < 60; ++n) {
    Net::Handle handle{};
    void* listener = nullptr;
    void* sendComm = nullptr;
    void* recvComm = nullptr;
    void* memory = nullptr;
    bool pending = false;  // an attempt that the next connect would go on with
    allocationsLeft = n;
    ncclResult_t result = net_.listen(0, handle.data(), &listener);
    for (int i = 0; i < 200 && result == ncclSuccess && (sendComm == nullptr || recvComm == nullptr); ++i) {
      if (sendComm == nullptr) {
        result = net_.connect(0, handle.data(), &sendComm);
        pending = result == ncclSuccess && sendComm == nullptr;
      }
      if (result == ncclSuccess && recvComm == nullptr) result = net_.accept(listener, &recvComm);
      if (result == ncclSuccess && recvComm != nullptr)
        result = net_.regMr(recvComm, &n, sizeof n, NCCL_PTR_HOST, &memory);
      usleep(200);
    }
    allocationsLeft = -1;
    EXPECT_EQ(net_.table->closeListen(listener), ncclSuccess);
    // The attempt may not be over yet: the machine is busy, or accept has failed. Without its listener it ends soon,
    // one way or the other; left alone it would be the context's until finalize.
    for (int i = 0; i < 20000 && pending; ++i) {
      pending = net_.connect(0, handle.data(), &sendComm) == ncclSuccess && sendComm == nullptr;
      usleep(1000);
    }
    EXPECT_EQ(net_.table->closeSend(sendComm), ncclSuccess);
    EXPECT_EQ(net_.table->closeRecv(recvComm), ncclSuccess);
    Captured::clear();
  }
  void* sendComm = nullptr;
  void* recvComm = nullptr;
  ASSERT_TRUE(net_.pair(&sendComm, &recvComm));
  exchange(sendComm, recvComm);
  EXPECT_EQ(net_.table->closeSend(sendComm), ncclSuccess);
  EXPECT_EQ(net_.table->closeRecv(recvComm), ncclSuccess);
  EXPECT_TRUE(descriptorsBecome(before)) << descriptors();
}

TEST_F(NetLimits, MessagesAndConnectionsCostNothingOverTime) {
  void* sendComm = nullptr;
  void* recvComm = nullptr;
  ASSERT_TRUE(net_.pair(&sendComm, &recvComm));
  for (int i = 0; i < 200; ++i) exchange(sendComm, recvComm);
  const std::size_t heapBefore = heapBytes();
  for (int i = 0; i < 3000; ++i) exchange(sendComm, recvComm);
  EXPECT_LT(heapBytes(), heapBefore + 4096) << "a message must not allocate for good";
  EXPECT_EQ(net_.table->closeSend(sendComm), ncclSuccess);
  EXPECT_EQ(net_.table->closeRecv(recvComm), ncclSuccess);

  const int descriptorsBefore = descriptors();
  const auto cycle = [&] {
    ASSERT_TRUE(net_.pair(&sendComm, &recvComm));
    EXPECT_EQ(net_.table->closeSend(sendComm), ncclSuccess);
    EXPECT_EQ(net_.table->closeRecv(recvComm), ncclSuccess);
  };
  for (int i = 0; i < 20; ++i) cycle();
  const std::size_t heapCycled = heapBytes();
  for (int i = 0; i < 100; ++i) cycle();
  EXPECT_LT(heapBytes(), heapCycled + 20000);
  EXPECT_TRUE(descriptorsBecome(descriptorsBefore)) << descriptors();
}
#endif

TEST_F(NetLimits, ObjectsMayBeClosedInAnyOrder) {
  std::mt19937 random(3);
  for (int round = 0; round < 20; ++round) {
    Net context(library_);
    ASSERT_EQ(context.init(), ncclSuccess);
    Net::Handle handle{};
    void* listener = nullptr;
    void* sendComm = nullptr;
    void* recvComm = nullptr;
    ASSERT_EQ(context.listen(0, handle.data(), &listener), ncclSuccess);
    if (round % 3 != 0) {
      ASSERT_TRUE(context.join(handle, listener, &sendComm, &recvComm));
      static char buffer[1 << 16];
      void* request = nullptr;
      ASSERT_EQ(context.irecv(recvComm, {{buffer, sizeof buffer}}, {0}, &request), ncclSuccess);
      ASSERT_EQ(context.isend(sendComm, buffer, sizeof buffer, round % 2, &request), ncclSuccess);
    } else {
      ASSERT_EQ(context.connect(0, handle.data(), &sendComm), ncclSuccess);  // and the listener goes before accept
    }
    std::array<int, 4> order{0, 1, 2, 3};
    std::shuffle(order.begin(), order.end(), random);
    for (const int what : order) {
      const auto start = Clock::now();
      if (what == 0) {
        EXPECT_EQ(context.table->closeListen(listener), ncclSuccess);
      }
      if (what == 1) {
        EXPECT_EQ(context.table->closeSend(sendComm), ncclSuccess);
      }
      if (what == 2) {
        EXPECT_EQ(context.table->closeRecv(recvComm), ncclSuccess);
      }
      if (what == 3) {
        EXPECT_EQ(context.finalize(), ncclSuccess);
      }
      EXPECT_LT(Clock::now() - start, std::chrono::seconds(4));
    }
  }
}

TEST_F(NetLimits, ThreadsMakeUseAndCloseConnectionsAtOnce) {
  std::vector<std::thread> workers;
  std::atomic<bool> stop{false};
  std::atomic<int> pairs{0};
  for (int t = 0; t < 8; ++t) {
    workers.emplace_back([&, t] {
      std::mt19937 random(static_cast<unsigned>(t));
      std::vector<char> out(65536, static_cast<char>(t));
      std::vector<char> in(65536);
      while (!stop) {
        Net context(library_);
        ASSERT_EQ(context.init(&Captured::log, static_cast<std::uint64_t>(t)), ncclSuccess);
        void* sendComm = nullptr;
        void* recvComm = nullptr;
        ASSERT_TRUE(context.pair(&sendComm, &recvComm));
        for (int i = 0; i < 5; ++i) {
          const std::size_t size = random() % out.size();
          void* receive = nullptr;
          void* send = nullptr;
          ASSERT_EQ(context.irecv(recvComm, {{in.data(), in.size()}}, {0}, &receive), ncclSuccess);
          ASSERT_EQ(context.isend(sendComm, out.data(), size, 0, &send), ncclSuccess);
          if (i == 4 && random() % 2 == 0) break;  // abort in flight
          ASSERT_TRUE(context.wait(receive));
          ASSERT_TRUE(context.wait(send));
          ASSERT_TRUE(std::equal(in.begin(), in.begin() + static_cast<std::ptrdiff_t>(size), out.begin()));
        }
        ASSERT_EQ(context.table->closeSend(sendComm), ncclSuccess);
        ASSERT_EQ(context.table->closeRecv(recvComm), ncclSuccess);
        ASSERT_EQ(context.finalize(), ncclSuccess);
        ++pairs;
      }
    });
  }
  std::this_thread::sleep_for(std::chrono::seconds(2));
  stop = true;
  for (std::thread& worker : workers) worker.join();
  EXPECT_GE(pairs, 8);
}

// A receiver in a process of its own; its handle comes back through a pipe.
class Child {
 public:
  Child() {
    int ends[2];
    if (pipe(ends) != 0) return;
    pid_ = fork();
    if (pid_ == 0) serve(ends[1]);
    close(ends[1]);
    ready = read(ends[0], handle.data(), handle.size()) == static_cast<ssize_t>(handle.size());
    close(ends[0]);
  }
  ~Child() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  void signal(int number) const { kill(pid_, number); }
  Net::Handle handle{};
  bool ready = false;

 private:
  [[noreturn]] static void serve(int output) {
    Library library(CGX_LIBRARY);
    Net net(library);
    Net::Handle mine{};
    void* listener = nullptr;
    void* comm = nullptr;
    if (net.init() != ncclSuccess || net.listen(0, mine.data(), &listener) != ncclSuccess) _exit(1);
    if (write(output, mine.data(), mine.size()) != static_cast<ssize_t>(mine.size())) _exit(1);
    while (comm == nullptr)
      if (net.accept(listener, &comm) != ncclSuccess) _exit(1);
    std::vector<char> buffer(4 << 20);
    for (;;) {
      void* request = nullptr;
      if (net.irecv(comm, {{buffer.data(), buffer.size()}}, {0}, &request) != ncclSuccess || !net.wait(request))
        _exit(1);
    }
  }

  pid_t pid_ = -1;
};

TEST(NetPeers, AKilledPeerIsARemoteErrorForItsOwnConnectionAndForNoOther) {
  Child doomed;
  Child healthy;
  ASSERT_TRUE(doomed.ready && healthy.ready);
  Library library(CGX_LIBRARY);
  Net net(library);
  ASSERT_EQ(net.init(), ncclSuccess);
  void* toDoomed = nullptr;
  void* toHealthy = nullptr;
  const auto start = Clock::now();
  while ((toDoomed == nullptr || toHealthy == nullptr) && Clock::now() - start < std::chrono::seconds(10)) {
    if (toDoomed == nullptr) {
      ASSERT_EQ(net.connect(0, doomed.handle.data(), &toDoomed), ncclSuccess);
    }
    if (toHealthy == nullptr) {
      ASSERT_EQ(net.connect(0, healthy.handle.data(), &toHealthy), ncclSuccess);
    }
  }
  std::vector<char> data(1 << 20);
  const auto send = [&](void* comm) {
    void* request = nullptr;
    ncclResult_t result = net.isend(comm, data.data(), data.size(), 0, &request);
    int done = 0;
    const auto from = Clock::now();
    while (result == ncclSuccess && done == 0 && Clock::now() - from < std::chrono::seconds(8))
      result = net.table->test(request, &done, nullptr);
    return result;
  };
  ASSERT_EQ(send(toDoomed), ncclSuccess);
  ASSERT_EQ(send(toHealthy), ncclSuccess);
  Captured::clear();
  doomed.signal(SIGKILL);
  const auto killed = Clock::now();
  ncclResult_t result = ncclSuccess;
  while (result == ncclSuccess && Clock::now() - killed < std::chrono::seconds(8)) result = send(toDoomed);
  EXPECT_EQ(result, ncclRemoteError);
  EXPECT_LT(Clock::now() - killed, std::chrono::seconds(8));
  EXPECT_EQ(Captured::take(NCCL_LOG_WARN).size(), 1U);
  for (int i = 0; i < 20; ++i) EXPECT_EQ(send(toHealthy), ncclSuccess);
  EXPECT_EQ(net.table->closeSend(toDoomed), ncclSuccess);
  EXPECT_EQ(net.table->closeSend(toHealthy), ncclSuccess);
  EXPECT_EQ(net.finalize(), ncclSuccess);
}

TEST(NetPeers, AStoppedPeerDoesNotHoldUpClose) {
  Child peer;
  ASSERT_TRUE(peer.ready);
  Library library(CGX_LIBRARY);
  Net net(library);
  ASSERT_EQ(net.init(), ncclSuccess);
  void* comm = nullptr;
  const auto start = Clock::now();
  while (comm == nullptr && Clock::now() - start < std::chrono::seconds(10))
    ASSERT_EQ(net.connect(0, peer.handle.data(), &comm), ncclSuccess);
  peer.signal(SIGSTOP);
  std::vector<char> data(4 << 20);
  void* request = nullptr;
  for (int i = 0; i < 32; ++i) ASSERT_EQ(net.isend(comm, data.data(), data.size(), 0, &request), ncclSuccess);
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  const auto closing = Clock::now();
  EXPECT_EQ(net.table->closeSend(comm), ncclSuccess);
  EXPECT_EQ(net.finalize(), ncclSuccess);
  EXPECT_LT(Clock::now() - closing, std::chrono::seconds(4));
}

TEST(NetPeers, NoSignalEscapesAndNoHandlerChanges) {
  struct sigaction before[32];
  struct sigaction after[32];
  for (int i = 1; i < 32; ++i) sigaction(i, nullptr, &before[i]);
  {
    Library library(CGX_LIBRARY);
    Net net(library);
    ASSERT_EQ(net.init(), ncclSuccess);
    void* sendComm = nullptr;
    void* recvComm = nullptr;
    ASSERT_TRUE(net.pair(&sendComm, &recvComm));
    EXPECT_EQ(net.table->closeRecv(recvComm), ncclSuccess);
    ncclResult_t result = ncclSuccess;
    char byte = 0;
    for (int i = 0; i < 2000 && result == ncclSuccess; ++i) {
      void* request = nullptr;
      result = net.isend(sendComm, &byte, 1, 0, &request);
      usleep(1000);
    }
    EXPECT_EQ(result, ncclRemoteError);
    EXPECT_EQ(net.table->closeSend(sendComm), ncclSuccess);
    EXPECT_EQ(net.finalize(), ncclSuccess);
  }
  for (int i = 1; i < 32; ++i) {
    sigaction(i, nullptr, &after[i]);
    EXPECT_EQ(after[i].sa_handler, before[i].sa_handler) << "signal " << i;
  }
}

}  // namespace
}  // namespace cgx::test
