// Where the library's threads run, on hosts that this machine is not: in a child with a /sys of its own, told by its
// libc that it may use 32 CPUs, and whatever the library asks of the kernel for its threads written down.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <functional>
#include <map>
#include <mutex>
#include <vector>

#include "support/host_tree.h"
#include "test/plugin/collnet_driver.h"
#include "test/plugin/net_driver.h"

namespace {

struct Kernel {
  int allowed = 0;  // CPUs 0 .. allowed - 1; 0: the real kernel answers
  std::mutex mutex;
  std::map<pthread_t, std::vector<int>> asked;
};
Kernel& kernel() {
  static auto* const instance = new Kernel;
  return *instance;
}

}  // namespace

// Before libc's for the library, as this program exports them.
extern "C" int sched_getaffinity(pid_t pid, std::size_t bytes, cpu_set_t* set) {
  if (kernel().allowed == 0) {
    static const auto real = reinterpret_cast<int (*)(pid_t, std::size_t, cpu_set_t*)>(::dlsym(RTLD_NEXT, __func__));
    return real(pid, bytes, set);
  }
  CPU_ZERO_S(bytes, set);
  for (int cpu = 0; cpu < kernel().allowed; ++cpu) CPU_SET_S(static_cast<std::size_t>(cpu), bytes, set);
  return 0;
}
extern "C" int pthread_setaffinity_np(pthread_t thread, std::size_t bytes, const cpu_set_t* set) {
  std::vector<int> cpus;
  for (std::size_t cpu = 0; cpu < bytes * 8; ++cpu)
    if (CPU_ISSET_S(cpu, bytes, set)) cpus.push_back(static_cast<int>(cpu));
  const std::scoped_lock lock(kernel().mutex);
  kernel().asked[thread] = cpus;
  return EINVAL;  // as in a cpuset without them; the library goes on
}
extern "C" int sched_setaffinity(pid_t, std::size_t, const cpu_set_t*) {
  ADD_FAILURE() << "the affinity of a thread that may be the program's own";
  return -1;
}

namespace cgx::test {
namespace {

using Net = NetDriver<ncclNet_v12_t>;
using Coll = CollDriver<ncclCollNet_v12_t>;
constexpr int kNoMount = 77;

const std::string kNic = "/sys/devices/pci0000:16/0000:16:01.0/0000:17:00.0";

/// Runs `body` in a child whose /sys is what `prepare` makes of it.
void onHost(const std::function<void(const HostTree&)>& prepare, const std::function<void()>& body) {
  const pid_t child = ::fork();
  if (child == 0) {
    if (::unshare(CLONE_NEWNS) != 0 || ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        ::mount("none", "/sys", "tmpfs", 0, nullptr) != 0)
      ::_exit(kNoMount);
    prepare(HostTree(""));
    ::setenv("CGX_SOCKET_IFNAME", "lo", 1);
    ::setenv("NCCL_NET_PLUGIN", "cgx", 1);
    kernel().allowed = 32;
    body();
    ::_exit(::testing::Test::HasFailure() ? 1 : 0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  if (WIFEXITED(status) && WEXITSTATUS(status) == kNoMount) GTEST_SKIP() << "needs the right to mount another /sys";
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

/// A connected pair of net and a communicator of two ranks: all threads that the library ever has.
std::vector<std::vector<int>> placesOfAllThreads(ncclNetProperties_v12_t* properties = nullptr) {
  // Never unloaded: the child ends with everything open, and threads run in it until then.
  auto& library = *new Library(CGX_LIBRARY);
  auto& net = *new Net(library);
  auto& coll = *new Coll(library);
  void* sendComm = nullptr;
  void* recvComm = nullptr;
  EXPECT_EQ(net.init(), ncclSuccess);
  EXPECT_EQ(coll.init(), ncclSuccess);
  EXPECT_TRUE(net.pair(&sendComm, &recvComm));
  ncclNetProperties_v12_t unwanted{};
  EXPECT_EQ(net.table->getProperties(0, properties == nullptr ? &unwanted : properties), ncclSuccess);
  std::vector<Coll::Handle> handles(2);
  void* listeners[2] = {};
  void* comms[2] = {};
  for (std::size_t i = 0; i < 2; ++i) EXPECT_EQ(coll.listen(0, handles[i].data(), &listeners[i]), ncclSuccess);
  std::thread second([&] { EXPECT_EQ(coll.connect(handles, 1, listeners[1], &comms[1]), ncclSuccess); });
  EXPECT_EQ(coll.connect(handles, 0, listeners[0], &comms[0]), ncclSuccess);
  second.join();
  std::vector<std::vector<int>> places;
  for (const auto& [thread, cpus] : kernel().asked) {
    EXPECT_NE(thread, ::pthread_self());
    places.push_back(cpus);
  }
  return places;
}

void nearNic(const HostTree& host) {
  host.device(kNic, "0x15b3", "0x020000", 0, "0-15");
  host.interface("lo", kNic);
}

std::vector<int> firstSixteen() {
  std::vector<int> cpus(16);
  for (int cpu = 0; cpu < 16; ++cpu) cpus[static_cast<std::size_t>(cpu)] = cpu;
  return cpus;
}

TEST(ThreadPlaces, AreTheCpusNearTheNicAndNcclIsToldWhereItIs) {
  onHost(nearNic, [] {
    ncclNetProperties_v12_t properties{};
    const auto places = placesOfAllThreads(&properties);
    EXPECT_EQ(places.size(), 5u) << "one progress thread, four workers";
    for (const auto& cpus : places) EXPECT_EQ(cpus, firstSixteen());
    ASSERT_NE(properties.pciPath, nullptr);
    EXPECT_EQ(properties.pciPath, kNic);
  });
}

TEST(ThreadPlaces, AreLeftAloneIfTheUserSaysSo) {
  onHost(nearNic, [] {
    ::setenv("CGX_AFFINITY", "inherit", 1);
    EXPECT_TRUE(placesOfAllThreads().empty());
  });
}

TEST(ThreadPlaces, AreLeftAloneWhereManyRanksShareTheHost) {
  onHost(nearNic, [] {
    ::setenv("LOCAL_WORLD_SIZE", "8", 1);
    EXPECT_TRUE(placesOfAllThreads().empty());
  });
}

TEST(ThreadPlaces, AreLeftAloneWithAVirtualNicOrWithoutSys) {
  onHost([](const HostTree& host) { host.interface("lo"); },
         [] {
           ncclNetProperties_v12_t properties{};
           EXPECT_TRUE(placesOfAllThreads(&properties).empty());
           EXPECT_EQ(properties.pciPath, nullptr);
         });
  onHost([](const HostTree&) {}, [] { EXPECT_TRUE(placesOfAllThreads().empty()); });
}

TEST(ThreadPlaces, AreLeftAloneOnOneNodeAndWhereTheNicIsUnplugged) {
  onHost(
      [](const HostTree& host) {
        host.device(kNic, "0x15b3", "0x020000", -1, "0-31");
        host.interface("lo", kNic);
      },
      [] { EXPECT_TRUE(placesOfAllThreads().empty()); });
  onHost(nearNic, [] {
    std::filesystem::remove_all("/sys/devices/pci0000:16");
    EXPECT_TRUE(placesOfAllThreads().empty());
  });
}

}  // namespace
}  // namespace cgx::test
