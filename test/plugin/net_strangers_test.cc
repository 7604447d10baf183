// Handles and peers that are not ours, servers that refuse, reset or stall: errors with a reason, nothing left behind,
// real peers undisturbed.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>

#include "cgx/wire_link.h"
#include "test/plugin/net_driver.h"
#include "test/plugin/process.h"

extern char** environ;

namespace cgx::test {
namespace {

using Net = NetDriver<ncclNet_v12_t>;
using Clock = std::chrono::steady_clock;

sockaddr_in addressOf(const Net::Handle& handle) {
  wire::Handle fields;
  std::memcpy(&fields, handle.data(), sizeof fields);
  EXPECT_EQ(fields.family, wire::kIpv4) << "these tests speak IPv4 only";
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(fields.port);
  std::memcpy(&address.sin_addr, fields.address.data(), 4);
  return address;
}

class NetStrangers : public ::testing::Test {
 protected:
  void SetUp() override {
    setenv("CGX_CONNECT_TIMEOUT", "1", 1);
    setenv("NCCL_SOCKET_FAMILY", "AF_INET", 1);
    Captured::clear();
    library_ = std::make_unique<Library>(CGX_LIBRARY);
    net_ = std::make_unique<Net>(*library_);
    ASSERT_EQ(net_->init(), ncclSuccess);
  }
  void TearDown() override {
    EXPECT_EQ(net_->finalize(), ncclSuccess);
    library_.reset();
    unsetenv("CGX_CONNECT_TIMEOUT");
    unsetenv("NCCL_SOCKET_FAMILY");
  }
  /// The handle of a listener that is gone, and a raw socket in its place if `server` is not nullptr.
  Net::Handle deserted(int* server) {
    Net::Handle handle{};
    void* listener = nullptr;
    EXPECT_EQ(net_->listen(0, handle.data(), &listener), ncclSuccess);
    EXPECT_EQ(net_->table->closeListen(listener), ncclSuccess);
    if (server != nullptr) {
      const sockaddr_in address = addressOf(handle);
      const int yes = 1;
      *server = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
      setsockopt(*server, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
      EXPECT_EQ(bind(*server, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
      EXPECT_EQ(::listen(*server, 512), 0);
    }
    return handle;
  }
  /// Polls one connect per context until it fails; each attempt has a context of its own so that they run at once.
  void expectFailures(int attempts, const Net::Handle& handle, const std::function<void()>& serve) {
    std::vector<std::unique_ptr<Net>> contexts;
    std::vector<bool> failed(static_cast<std::size_t>(attempts));
    for (int i = 0; i < attempts; ++i) {
      contexts.push_back(std::make_unique<Net>(*library_));
      ASSERT_EQ(contexts.back()->init(&Captured::log, static_cast<std::uint64_t>(i)), ncclSuccess);
    }
    Captured::clear();
    const auto start = Clock::now();
    std::ptrdiff_t done = 0;
    while (done < attempts && Clock::now() - start < std::chrono::seconds(10)) {
      serve();
      for (std::size_t i = 0; i < contexts.size(); ++i) {
        if (failed[i]) continue;
        Net::Handle copy = handle;
        void* comm = nullptr;
        failed[i] = contexts[i]->connect(0, copy.data(), &comm) != ncclSuccess;
        ASSERT_EQ(comm, nullptr);
      }
      done = std::count(failed.begin(), failed.end(), true);
      usleep(1000);
    }
    EXPECT_EQ(done, attempts);
    EXPECT_EQ(Captured::take(NCCL_LOG_WARN).size(), static_cast<std::size_t>(attempts)) << "one line each";
    for (auto& context : contexts) EXPECT_EQ(context->finalize(), ncclSuccess);
  }
  void expectAPairWorks() {
    void* sendComm = nullptr;
    void* recvComm = nullptr;
    ASSERT_TRUE(net_->pair(&sendComm, &recvComm));
    EXPECT_EQ(net_->table->closeSend(sendComm), ncclSuccess);
    EXPECT_EQ(net_->table->closeRecv(recvComm), ncclSuccess);
  }

  std::unique_ptr<Library> library_;
  std::unique_ptr<Net> net_;
};

TEST_F(NetStrangers, ConnectsToAClosedPortFailWithAReasonAndLeaveNothing) {
  const int before = descriptors();
  const Net::Handle handle = deserted(nullptr);
  expectFailures(60, handle, [] {});
  EXPECT_TRUE(descriptorsBecome(before)) << descriptors();
  expectAPairWorks();
}

TEST_F(NetStrangers, ConnectsToAServerThatResetsFailAndLeaveNothing) {
  const int before = descriptors();
  int server = -1;
  const Net::Handle handle = deserted(&server);
  expectFailures(60, handle, [&] {
    for (int fd = accept(server, nullptr, nullptr); fd >= 0; fd = accept(server, nullptr, nullptr)) {
      const linger now{1, 0};
      setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
      close(fd);
    }
  });
  close(server);
  EXPECT_TRUE(descriptorsBecome(before)) << descriptors();
  expectAPairWorks();
}

TEST_F(NetStrangers, ConnectsToAServerThatSaysNothingFailAndLeaveNothing) {
  const int before = descriptors();
  int server = -1;
  const Net::Handle handle = deserted(&server);
  expectFailures(60, handle, [] {});
  close(server);
  EXPECT_TRUE(descriptorsBecome(before)) << descriptors();
  expectAPairWorks();
}

TEST_F(NetStrangers, AHandleOfAnotherPluginIsRefusedAtOnce) {
  Net::Handle foreign{};
  const sockaddr_in address{
      .sin_family = AF_INET, .sin_port = htons(4711), .sin_addr = {htonl(INADDR_LOOPBACK)}, .sin_zero = {}};
  const std::uint64_t magic = 0x564ab9f2fc4b9d6c;  // NCCL's own sockets
  std::memcpy(foreign.data(), &address, sizeof address);
  std::memcpy(foreign.data() + 32, &magic, sizeof magic);
  void* comm = nullptr;
  const auto start = Clock::now();
  EXPECT_EQ(net_->connect(0, foreign.data(), &comm), ncclInvalidUsage);
  EXPECT_LT(Clock::now() - start, std::chrono::seconds(2));
  EXPECT_EQ(comm, nullptr);
  EXPECT_EQ(Captured::take(NCCL_LOG_WARN).size(), 1U);
}

TEST_F(NetStrangers, AStrangerOnThePortDoesNotDisturbThePeer) {
  Net::Handle handle{};
  void* listener = nullptr;
  ASSERT_EQ(net_->listen(0, handle.data(), &listener), ncclSuccess);
  const sockaddr_in address = addressOf(handle);
  std::vector<int> strangers;
  for (int i = 0; i < 3; ++i) {
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ASSERT_EQ(::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
    const char hello[] = "GET / HTTP/1.1\r\nHost: x\r\n\r\n0123456789012345678901234567890123456789";
    if (i > 0) {
      EXPECT_GT(::send(fd, hello, i == 1 ? 8 : sizeof hello, MSG_NOSIGNAL), 0);
    }
    strangers.push_back(fd);
  }
  void* sendComm = nullptr;
  void* recvComm = nullptr;
  const auto start = Clock::now();
  ASSERT_TRUE(net_->join(handle, listener, &sendComm, &recvComm));
  EXPECT_LT(Clock::now() - start, std::chrono::seconds(8));
  for (const int fd : strangers) close(fd);
  EXPECT_EQ(net_->table->closeListen(listener), ncclSuccess);
  EXPECT_EQ(net_->table->closeSend(sendComm), ncclSuccess);
  EXPECT_EQ(net_->table->closeRecv(recvComm), ncclSuccess);
}

TEST(NetInterfaces, WithoutAUsableInterfaceInitFailsFastAndALaterOneSucceeds) {
  const int descriptorsBefore = descriptors();
  const int threadsBefore = threads();
  Library library(CGX_LIBRARY);
  Net net(library);
  setenv("NCCL_SOCKET_IFNAME", "=nonexistent0", 1);
  std::vector<std::string> variables;
  for (char** variable = environ; *variable != nullptr; ++variable) variables.emplace_back(*variable);
  Captured::clear();
  const auto start = Clock::now();
  EXPECT_NE(net.init(), ncclSuccess);
  EXPECT_LT(Clock::now() - start, std::chrono::seconds(4));
  const auto warnings = Captured::take(NCCL_LOG_WARN);
  ASSERT_EQ(warnings.size(), 1U);
  EXPECT_NE(warnings[0].find("nonexistent0"), std::string::npos) << warnings[0];
  EXPECT_TRUE(descriptorsBecome(descriptorsBefore)) << descriptors();
  EXPECT_EQ(threads(), threadsBefore);
  std::size_t i = 0;
  for (char** variable = environ; *variable != nullptr; ++variable) ASSERT_EQ(variables.at(i++), *variable);
  unsetenv("NCCL_SOCKET_IFNAME");
  EXPECT_EQ(net.init(), ncclSuccess);
  EXPECT_EQ(net.finalize(), ncclSuccess);
  EXPECT_TRUE(Captured::take(NCCL_LOG_WARN).empty());
}

}  // namespace
}  // namespace cgx::test
