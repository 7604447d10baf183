// One fault after the other through the library that users load: every error that NCCL gets has its reason in the log,
// with the operation and the peer or the cause, and never in more than four lines. BUGS 12-03.
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <functional>
#include <memory>
#include <optional>

#include "cgx/wire_link.h"
#include "test/plugin/collnet_driver.h"
#include "test/plugin/net_driver.h"

namespace cgx::test {
namespace {

using Net = NetDriver<ncclNet_v12_t>;
using Coll = CollDriver<ncclCollNet_v12_t>;
using Variables = std::vector<std::pair<std::string, std::string>>;
using Clock = std::chrono::steady_clock;

/// The library with one context of each half, in an environment; everything ends with it.
class Plugin {
 public:
  explicit Plugin(const Variables& variables) : variables_(variables) {
    for (const auto& [name, value] : variables_) setenv(name.c_str(), value.c_str(), 1);
    library_.emplace(CGX_LIBRARY);
    net.emplace(*library_);
    coll.emplace(*library_);
  }
  ~Plugin() {
    if (send != nullptr) net->table->closeSend(send);
    if (recv != nullptr) net->table->closeRecv(recv);
    if (comm != nullptr) coll->table->closeColl(comm);
    if (listener != nullptr) net->table->closeListen(listener);
    if (collListener != nullptr) coll->table->closeListen(collListener);
    if (begun_) {
      net->finalize();
      coll->finalize();
    }
    library_.reset();
    for (const auto& [name, value] : variables_) unsetenv(name.c_str());
  }
  Plugin& begin() {
    EXPECT_EQ(net->init(), ncclSuccess);
    EXPECT_EQ(coll->init(), ncclSuccess);
    begun_ = true;
    return *this;
  }
  Plugin& connected() {
    EXPECT_TRUE(begin().net->pair(&send, &recv));
    return *this;
  }
  /// A collective communicator of one rank.
  Plugin& alone() {
    begin();
    std::vector<Coll::Handle> handles(1);
    EXPECT_EQ(coll->listen(0, handles[0].data(), &collListener), ncclSuccess);
    EXPECT_EQ(coll->connect(handles, 0, collListener, &comm), ncclSuccess);
    return *this;
  }
  /// The first result of `call` that is not success, within ten seconds.
  static ncclResult_t until(const std::function<ncclResult_t()>& call) {
    ncclResult_t result = ncclSuccess;
    for (const auto end = Clock::now() + std::chrono::seconds(10); result == ncclSuccess && Clock::now() < end;) {
      result = call();
      usleep(1000);
    }
    return result;
  }

  std::optional<Net> net;
  std::optional<Coll> coll;
  void* send = nullptr;
  void* recv = nullptr;
  void* comm = nullptr;
  void* listener = nullptr;
  void* collListener = nullptr;

 private:
  std::optional<Library> library_;
  Variables variables_;
  bool begun_ = false;
};

char memory[64];

ncclResult_t connectTo(Plugin& plugin, Net::Handle handle) {
  void* comm = nullptr;
  return Plugin::until([&] {
    Net::Handle copy = handle;
    return plugin.net->connect(0, copy.data(), &comm);
  });
}

ncclResult_t handleOf(Plugin& plugin, Net::Handle* handle) {
  return plugin.net->listen(0, handle->data(), &plugin.listener);
}

/// A port that somebody else has.
class TakenPort {
 public:
  /// 0: any.
  explicit TakenPort(std::uint16_t port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    const int yes = 1;
    ::setsockopt(fd_, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    socklen_t length = sizeof address;
    EXPECT_EQ(::bind(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    EXPECT_EQ(::listen(fd_, 1), 0);
    EXPECT_EQ(::getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &length), 0);
    range_ = std::to_string(ntohs(address.sin_port)) + "-" + std::to_string(ntohs(address.sin_port));
  }
  ~TakenPort() { ::close(fd_); }
  const std::string& range() const { return range_; }

 private:
  int fd_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  std::string range_;
};

struct Fault {
  const char* name;
  std::vector<const char*> words;  // in one of the lines
  std::function<ncclResult_t()> happens;
  Variables variables = {};
};

class FaultSweep : public ::testing::TestWithParam<Fault> {};

Plugin* current = nullptr;  // for the table below

TEST_P(FaultSweep, IsToldWithOperationAndCauseAndWithoutAFlood) {
  setenv("NCCL_SOCKET_IFNAME", "=lo", 1);
  setenv("NCCL_SOCKET_FAMILY", "AF_INET", 1);
  setenv("NCCL_NET_PLUGIN", "cgx", 1);
  setenv("NCCL_COLLNET_ENABLE", "1", 1);
  setenv("CGX_CONNECT_TIMEOUT", "1", 1);
  {
    Plugin plugin(GetParam().variables);
    current = &plugin;
    Captured::clear();
    EXPECT_NE(GetParam().happens(), ncclSuccess);
    const auto lines = Captured::take(NCCL_LOG_WARN);
    std::string all;
    for (const std::string& line : lines) all += line + "\n";
    EXPECT_GE(lines.size(), 1U);
    EXPECT_LT(lines.size(), 5U) << all;
    EXPECT_TRUE(std::any_of(lines.begin(), lines.end(),
                            [](const std::string& line) {
                              const auto& words = GetParam().words;
                              return std::all_of(words.begin(), words.end(), [&](const char* word) {
                                return line.find(word) != std::string::npos;
                              });
                            }))
        << "this is what was said:\n"
        << all;
    current = nullptr;
  }
  for (const char* name :
       {"NCCL_SOCKET_IFNAME", "NCCL_SOCKET_FAMILY", "NCCL_NET_PLUGIN", "NCCL_COLLNET_ENABLE", "CGX_CONNECT_TIMEOUT"})
    unsetenv(name);
}

Plugin& begun() { return current->begin(); }
Plugin& connected() { return current->connected(); }
Plugin& alone() { return current->alone(); }

ncclResult_t testOf(Plugin& plugin, void* request) {
  return Plugin::until([&plugin, request] {
    int done = 0;
    return plugin.net->table->test(request, &done, nullptr);
  });
}

std::vector<Fault> faultsOfTheNetHalf() {
  void* request = nullptr;
  return {
      {"NoInterface",
       {"no usable network interface", "nonexistent0"},
       [] { return current->net->init(); },
       {{"NCCL_SOCKET_IFNAME", "=nonexistent0"}}},
      {"PropertiesOfNoDevice",
       {"getProperties", "device 99"},
       [] {
         ncclNetProperties_v12_t properties{};
         return begun().net->table->getProperties(99, &properties);
       }},
      {"ListenOnNoDevice",
       {"listen", "device 99"},
       [] {
         Net::Handle handle{};
         return begun().net->listen(99, handle.data(), &current->listener);
       }},
      {"AnEmptyHandle", {"connect", "all zero"}, [] { return connectTo(begun(), {}); }},
      {"AForeignHandle",
       {"connect", "not from this plugin"},
       [] {
         Net::Handle handle{};
         handle[0] = std::byte{AF_INET};
         return connectTo(begun(), handle);
       }},
      {"NobodyListens",
       {"connect", "127.0.0.1:", "Connection refused", "errno 111"},
       [] {
         Net::Handle handle{};
         EXPECT_EQ(handleOf(begun(), &handle), ncclSuccess);
         EXPECT_EQ(current->net->table->closeListen(std::exchange(current->listener, nullptr)), ncclSuccess);
         return connectTo(*current, handle);
       }},
      {"APeerThatIsSilent",
       {"connect", "127.0.0.1:", "CGX_CONNECT_TIMEOUT"},
       [] {
         Net::Handle handle{};
         EXPECT_EQ(handleOf(begun(), &handle), ncclSuccess);
         EXPECT_EQ(current->net->table->closeListen(std::exchange(current->listener, nullptr)), ncclSuccess);
         const TakenPort inItsPlace(std::bit_cast<wire::Handle>(handle).port);
         return connectTo(*current, handle);
       }},
      {"GpuMemory",
       {"regMr", "host memory"},
       [] {
         void* handle = nullptr;
         return connected().net->regMr(current->send, memory, sizeof memory, NCCL_PTR_CUDA, &handle);
       }},
      {"TooManyReceives",
       {"irecv", "9"},
       [=]() mutable {
         std::vector<std::pair<void*, std::size_t>> buffers(9, {memory, 1});
         return connected().net->irecv(current->recv, buffers, std::vector<int>(9), &request);
       }},
      {"AMessageTooLong",
       {"127.0.0.1:", "64 bytes", "10 bytes"},
       [=]() mutable {
         void* sent = nullptr;
         EXPECT_EQ(connected().net->irecv(current->recv, {{memory, 10}}, {0}, &request), ncclSuccess);
         // An error at once where the announcement of the receive is there already, in the tests of both ends else.
         const ncclResult_t result = current->net->isend(current->send, memory, sizeof memory, 0, &sent);
         return result != ncclSuccess ? result : testOf(*current, request);
       }},
      {"APeerThatLeaves",
       {"test", "127.0.0.1:", "closed"},
       [=]() mutable {
         EXPECT_EQ(connected().net->irecv(current->recv, {{memory, 10}}, {0}, &request), ncclSuccess);
         EXPECT_EQ(current->net->table->closeSend(std::exchange(current->send, nullptr)), ncclSuccess);
         return testOf(*current, request);
       }},
  };
}

std::vector<Fault> faultsOfTheCollectiveHalf() {
  void* request = nullptr;
  return {
      {"CollListenOnNoDevice",
       {"listen", "device 99"},
       [] {
         Coll::Handle handle{};
         return begun().coll->listen(99, handle.data(), &current->collListener);
       }},
      {"ABadSetting",
       {"connect", "CGX_BITS=\"99\"", "accepted"},
       [] {
         std::vector<Coll::Handle> handles(1);
         EXPECT_EQ(begun().coll->listen(0, handles[0].data(), &current->collListener), ncclSuccess);
         return current->coll->connect(handles, 0, current->collListener, &current->comm);
       },
       {{"CGX_BITS", "99"}}},
      {"ARankOutOfRange",
       {"connect", "rank 5"},
       [] {
         std::vector<Coll::Handle> handles(1);
         EXPECT_EQ(begun().coll->listen(0, handles[0].data(), &current->collListener), ncclSuccess);
         return current->coll->connect(handles, 5, current->collListener, &current->comm);
       }},
      {"AnEmptyHandleOfARank",
       {"connect", "rank 0", "all zero"},
       [] {
         std::vector<Coll::Handle> handles(2);
         EXPECT_EQ(begun().coll->listen(0, handles[1].data(), &current->collListener), ncclSuccess);
         return current->coll->connect(handles, 1, current->collListener, &current->comm);
       }},
      {"ARankThatDoesNotCome",
       {"connect", "rank 1", "CGX_CONNECT_TIMEOUT"},
       [] {
         std::vector<Coll::Handle> handles(2);
         void* absent = nullptr;
         EXPECT_EQ(begun().coll->listen(0, handles[0].data(), &current->collListener), ncclSuccess);
         EXPECT_EQ(current->coll->listen(0, handles[1].data(), &absent), ncclSuccess);
         const ncclResult_t result = current->coll->connect(handles, 0, current->collListener, &current->comm);
         EXPECT_EQ(current->coll->table->closeListen(absent), ncclSuccess);
         return result;
       }},
      {"ATypeThatIsNotReduced",
       {"iallreduce", "data type 0"},
       [=]() mutable {
         return alone().coll->iallreduce(current->comm, memory, memory, 8, ncclInt8, ncclSum, &request);
       }},
      {"AnOperationThatIsNotSum",
       {"iallreduce", "operation 2"},
       [=]() mutable {
         return alone().coll->iallreduce(current->comm, memory, memory, 8, ncclFloat32, ncclMax, &request);
       }},
      {"NoMemoryToReduceInto",
       {"iallreduce", "no buffer"},
       [=]() mutable {
         return alone().coll->iallreduce(current->comm, memory, nullptr, 8, ncclFloat32, ncclSum, &request);
       }},
  };
}

std::string nameOf(const testing::TestParamInfo<Fault>& fault) { return fault.param.name; }
INSTANTIATE_TEST_SUITE_P(Net, FaultSweep, ::testing::ValuesIn(faultsOfTheNetHalf()), nameOf);
INSTANTIATE_TEST_SUITE_P(Coll, FaultSweep, ::testing::ValuesIn(faultsOfTheCollectiveHalf()), nameOf);

// The port is taken before the test's environment is made.
TEST(FaultOfAPort, ThatIsTakenIsNamedWithTheRange) {
  const TakenPort port(0);
  setenv("NCCL_SOCKET_IFNAME", "=lo", 1);
  setenv("NCCL_SOCKET_FAMILY", "AF_INET", 1);
  {
    Plugin plugin({{"CGX_PORT_RANGE", port.range()}});
    EXPECT_EQ(plugin.net->init(), ncclSuccess);
    Net::Handle handle{};
    Captured::clear();
    EXPECT_NE(handleOf(plugin, &handle), ncclSuccess);
    const auto lines = Captured::take(NCCL_LOG_WARN);
    ASSERT_EQ(lines.size(), 1U);
    for (const std::string& word : {std::string("listen"), port.range(), std::string("CGX_PORT_RANGE")})
      EXPECT_NE(lines[0].find(word), std::string::npos) << lines[0];
  }
  unsetenv("NCCL_SOCKET_IFNAME");
  unsetenv("NCCL_SOCKET_FAMILY");
}

}  // namespace
}  // namespace cgx::test
