// What the library does with the process that it is loaded into: names by which it is found, CPUs, memory, socket
// options, missing privileges, a peer that leaves.
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>

#include "test/plugin/net_driver.h"
#include "test/plugin/process.h"

namespace cgx::test {
namespace {

using Net = NetDriver<ncclNet_v12_t>;
using Clock = std::chrono::steady_clock;

/// A connected pair of a library of its own, for what changes the process or reads settings at load.
struct Pair {
  Pair() { ready = net.init() == ncclSuccess && net.pair(&sendComm, &recvComm); }
  ~Pair() {
    net.table->closeSend(sendComm);
    net.table->closeRecv(recvComm);
    net.finalize();
  }
  bool exchange(std::size_t bytes = 100000) {
    std::vector<char> out(bytes, 'x');
    std::vector<char> in(bytes);
    void* receive = nullptr;
    void* send = nullptr;
    return net.irecv(recvComm, {{in.data(), in.size()}}, {0}, &receive) == ncclSuccess &&
           net.isend(sendComm, out.data(), out.size(), 0, &send) == ncclSuccess && net.wait(receive) &&
           net.wait(send) && in == out;
  }
  Library library{CGX_LIBRARY};
  Net net{library};
  void* sendComm = nullptr;
  void* recvComm = nullptr;
  bool ready = false;
};

TEST(NetEnvironment, SocketsCarryTheKeepaliveAndTimeoutOfTheSettings) {
  setenv("CGX_KEEPALIVE", "7", 1);
  setenv("CGX_PEER_TIMEOUT", "11", 1);
  Pair pair;
  unsetenv("CGX_KEEPALIVE");
  unsetenv("CGX_PEER_TIMEOUT");
  ASSERT_TRUE(pair.ready);
  int connections = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    const int fd = std::atoi(entry.path().filename().c_str());
    const auto option = [fd](int level, int name) {
      int value = -1;
      socklen_t size = sizeof value;
      getsockopt(fd, level, name, &value, &size);
      return value;
    };
    tcp_info info{};
    socklen_t size = sizeof info;
    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0 || info.tcpi_state != TCP_ESTABLISHED) continue;
    ++connections;
    EXPECT_EQ(option(SOL_SOCKET, SO_KEEPALIVE), 1);
    EXPECT_EQ(option(IPPROTO_TCP, TCP_KEEPIDLE), 7);
    EXPECT_EQ(option(IPPROTO_TCP, TCP_KEEPINTVL), 7);
    EXPECT_EQ(option(IPPROTO_TCP, TCP_USER_TIMEOUT), 11000);
    EXPECT_EQ(option(IPPROTO_TCP, TCP_NODELAY), 1);
  }
  EXPECT_GE(connections, 2);
}

TEST(NetEnvironment, TheUsersWordOnTheSpeedCounts) {
  const auto speed = [] {
    Library library(CGX_LIBRARY);
    Net net(library);
    ncclNetProperties_v12_t props{};
    EXPECT_EQ(net.init(), ncclSuccess);
    EXPECT_EQ(net.table->getProperties(0, &props), ncclSuccess);
    EXPECT_EQ(net.finalize(), ncclSuccess);
    return props.speed;
  };
  const int own = speed();
  EXPECT_GT(own, 0);
  setenv("CGX_LINK_SPEED", "25000", 1);
  EXPECT_EQ(speed(), 25000);
  Captured::clear();
  setenv("CGX_LINK_SPEED", "fast", 1);
  EXPECT_EQ(speed(), own);
  const auto warnings = Captured::take(NCCL_LOG_WARN);
  ASSERT_EQ(warnings.size(), 1U);
  EXPECT_NE(warnings[0].find("CGX_LINK_SPEED"), std::string::npos) << warnings[0];
  unsetenv("CGX_LINK_SPEED");
}

TEST(NetEnvironment, APeerThatLeavesIsAnErrorAndWaitingCostsNoCpu) {
  Pair pair;
  ASSERT_TRUE(pair.ready);
  const auto cpuOfHalfASecond = [] {
    rusage before{};
    rusage after{};
    getrusage(RUSAGE_SELF, &before);
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    getrusage(RUSAGE_SELF, &after);
    const auto seconds = [](const timeval& t) {
      return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6;
    };
    return seconds(after.ru_utime) + seconds(after.ru_stime) - seconds(before.ru_utime) - seconds(before.ru_stime);
  };
  char room[64];
  void* request = nullptr;
  ASSERT_EQ(pair.net.irecv(pair.recvComm, {{room, sizeof room}}, {0}, &request), ncclSuccess);
  EXPECT_LT(cpuOfHalfASecond(), 0.05) << "waiting for a message";
  ASSERT_EQ(pair.net.table->closeSend(std::exchange(pair.sendComm, nullptr)), ncclSuccess);
  const auto start = Clock::now();
  int done = 0;
  ncclResult_t result = ncclSuccess;
  while (result == ncclSuccess && Clock::now() - start < std::chrono::seconds(8))
    result = pair.net.table->test(request, &done, nullptr);
  EXPECT_EQ(result, ncclRemoteError);
  EXPECT_LT(Clock::now() - start, std::chrono::seconds(5));
  EXPECT_LT(cpuOfHalfASecond(), 0.05) << "after the peer has left";
}

TEST(NetEnvironment, ThreadsKeepToTheCpusOfTheProcess) {
  cpu_set_t all;
  ASSERT_EQ(sched_getaffinity(0, sizeof all, &all), 0);
  int last = -1;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
    if (CPU_ISSET(cpu, &all)) last = cpu;
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(last, &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
  {
    Pair pair;
    EXPECT_TRUE(pair.ready);
    EXPECT_TRUE(pair.exchange());
    int seen = 0;
    for (const int thread : liveThreads()) {
      std::string name;
      std::getline(std::ifstream("/proc/self/task/" + std::to_string(thread) + "/comm") >> std::ws, name);
      cpu_set_t mask;
      if (!name.starts_with("cgx") || sched_getaffinity(thread, sizeof mask, &mask) != 0) continue;
      EXPECT_TRUE(CPU_EQUAL(&mask, &one)) << name;
      ++seen;
    }
    EXPECT_GE(seen, 1) << "no thread of the library's";
  }
  sched_setaffinity(0, sizeof all, &all);
}

TEST(NetEnvironment, TwoHundredIdleConnectionsCostLittle) {
  Pair first;
  ASSERT_TRUE(first.ready);
  const int threadsBefore = threads();
  const long before = residentKiB();
  std::vector<std::pair<void*, void*>> comms(200);
  for (auto& [sendComm, recvComm] : comms) ASSERT_TRUE(first.net.pair(&sendComm, &recvComm));
#ifndef CGX_SANITIZED
  EXPECT_LT(residentKiB() - before, 64 << 10) << "KiB for both ends of all of them";
#else
  static_cast<void>(before);
#endif
  EXPECT_LE(threads(), threadsBefore + 2);
  EXPECT_TRUE(first.exchange());
  for (auto& [sendComm, recvComm] : comms) {
    EXPECT_EQ(first.net.table->closeSend(sendComm), ncclSuccess);
    EXPECT_EQ(first.net.table->closeRecv(recvComm), ncclSuccess);
  }
}

#if defined(__x86_64__) && !defined(CGX_SANITIZED)
/// Exit status of `body` in a child, or -1.
int inChild(const std::function<int()>& body) {
  const pid_t child = fork();
  if (child == 0) _exit(body());
  int status = 0;
  return waitpid(child, &status, 0) == child && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/// EPERM for what containers tend to forbid.
bool forbidSpecialCalls() {
  const sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0),
#define CGX_FORBID(call) \
  BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (call), 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM)
      CGX_FORBID(SYS_io_uring_setup),
      CGX_FORBID(SYS_process_vm_readv),
      CGX_FORBID(SYS_process_vm_writev),
      CGX_FORBID(SYS_pidfd_open),
      CGX_FORBID(SYS_pidfd_getfd),
      CGX_FORBID(SYS_memfd_create),
      CGX_FORBID(SYS_perf_event_open),
      CGX_FORBID(SYS_userfaultfd),
      CGX_FORBID(SYS_mbind),
#undef CGX_FORBID
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program{static_cast<unsigned short>(std::size(filter)), const_cast<sock_filter*>(filter)};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

TEST(NetEnvironment, ASandboxWithoutSpecialCallsIsEnough) {
  const int status = inChild([] {
    const rlimit none{0, 0};
    if (setrlimit(RLIMIT_MEMLOCK, &none) != 0 || !forbidSpecialCalls()) return 77;
    Pair pair;
    return pair.ready && pair.exchange() ? 0 : 1;
  });
  if (status == 77) GTEST_SKIP() << "this host lets nobody install a seccomp filter";
  EXPECT_EQ(status, 0);
}
#endif

#ifdef CGX_PLAIN_HOST
// NCCL's rule: the name as it is, then with libnccl-net- before it and .so behind it; without a name, libnccl-net.so.
TEST(InstalledNames, AllFindTheSameFile) {
  std::string name = std::filesystem::temp_directory_path() / "cgx-installed-XXXXXX";
  const std::string folder = mkdtemp(name.data());
  std::filesystem::copy_file(CGX_LIBRARY, folder + "/libnccl-net-cgx.so");
  std::filesystem::create_symlink("libnccl-net-cgx.so", folder + "/libnccl-net.so");
  const auto loads = [&](const std::string& file) {
    return std::system(("LD_LIBRARY_PATH=" + folder + " " CGX_PLAIN_HOST " " + file + " 2>/dev/null").c_str()) == 0;
  };
  for (const std::string file : {"libnccl-net-cgx.so", "libnccl-net.so"}) {
    EXPECT_TRUE(loads(file)) << file;
    EXPECT_TRUE(loads(folder + "/" + file)) << file;
  }
  EXPECT_TRUE(loads(std::string("libnccl-net-") + "cgx" + ".so"));
  EXPECT_FALSE(loads("libnccl-net-other.so"));
  std::filesystem::remove_all(folder);
}
#endif

}  // namespace
}  // namespace cgx::test
