// The plugin's own logic for what a process has once: contexts, settings, what it says, and what a fork leaves.
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <utility>
#include <vector>

#include "test/plugin/net_logic_fixture.h"

namespace cgx::test {
namespace {

TEST_F(NetLogic, UnfinishedConnectsEndWithTheirContextOrListener) {
  ASSERT_EQ(net_->init(), ncclSuccess);
  control_->stall = true;
  for (int i = 0; i < 100; ++i) {
    Net::Handle handle{};
    void* listener = nullptr;
    void* comm = nullptr;
    ASSERT_EQ(net_->listen(0, handle.data(), &listener), ncclSuccess);
    ASSERT_EQ(net_->connect(0, handle.data(), &comm), ncclSuccess);
    ASSERT_EQ(net_->connect(0, handle.data(), &comm), ncclSuccess);
    ASSERT_EQ(comm, nullptr);
    EXPECT_EQ(control_->connectors, 1) << "the second call must go on with the first attempt";
    ASSERT_EQ(net_->table->closeListen(listener), ncclSuccess);
    EXPECT_EQ(control_->connectors, 0);
  }
  Net::Handle handle{};
  void* listener = nullptr;
  void* comm = nullptr;
  ASSERT_EQ(net_->listen(0, handle.data(), &listener), ncclSuccess);
  ASSERT_EQ(net_->connect(0, handle.data(), &comm), ncclSuccess);
  EXPECT_EQ(control_->connectors, 1);
  EXPECT_EQ(net_->finalize(), ncclSuccess);
  EXPECT_EQ(control_->connectors, 0);
  ASSERT_EQ(net_->table->closeListen(listener), ncclSuccess);
  EXPECT_EQ(control_->listeners, 0);

  control_->stall = false;
  connect();
  void* sent = send(8);
  EXPECT_TRUE(net_->wait(post(8)));
  EXPECT_TRUE(net_->wait(sent));
  disconnect();
}

TEST_F(NetLogic, ContextsAreCountedAndAStaleOneIsAnErrorWithoutACrash) {
  std::vector<std::unique_ptr<Net>> contexts;
  for (int i = 0; i < 64; ++i) {
    contexts.push_back(std::make_unique<Net>(*library_));
    ASSERT_EQ(contexts.back()->init(&Captured::log, static_cast<std::uint64_t>(i)), ncclSuccess);
  }
  for (std::size_t i = 0; i < 64; i += 2) EXPECT_EQ(contexts[i]->finalize(), ncclSuccess);
  EXPECT_EQ(contexts[0]->finalize(), ncclInvalidArgument);
  EXPECT_EQ(net_->table->finalize(nullptr), ncclInvalidArgument);
  Net::Handle handle{};
  void* listener = nullptr;
  EXPECT_EQ(contexts[0]->listen(0, handle.data(), &listener), ncclInvalidArgument);
  for (std::size_t i = 1; i < 64; i += 2) {
    void* sendComm = nullptr;
    void* recvComm = nullptr;
    EXPECT_TRUE(contexts[i]->pair(&sendComm, &recvComm));
    EXPECT_EQ(net_->table->closeSend(sendComm), ncclSuccess);
    EXPECT_EQ(net_->table->closeRecv(recvComm), ncclSuccess);
    EXPECT_EQ(contexts[i]->finalize(), ncclSuccess);
  }
  EXPECT_EQ(net_->init(), ncclSuccess);
  EXPECT_EQ(net_->finalize(), ncclSuccess);
}

TEST_F(NetLogic, AFailedInitIsNotRemembered) {
  control_->noDevices = true;
  EXPECT_EQ(net_->init(), ncclInvalidUsage);
  const auto warnings = Captured::take(NCCL_LOG_WARN);
  ASSERT_EQ(warnings.size(), 1U);
  EXPECT_EQ(warnings[0], "NET/CGX : init: no usable interface");
  control_->noDevices = false;
  EXPECT_EQ(net_->init(), ncclSuccess);
  EXPECT_EQ(net_->finalize(), ncclSuccess);
}

TEST_F(NetLogic, OneBannerAProcessSaysWhetherCompressionIsOn) {
  const std::pair<const char*, const char*> cases[] = {{nullptr, "off (not named in NCCL_NET_PLUGIN)"},
                                                       {"none", "off (not named in NCCL_NET_PLUGIN)"},
                                                       {"cgx", "4 bits"},
                                                       {"libnccl-net-cgx.so", "4 bits"},
                                                       {"ofi,cgx", "4 bits"},
                                                       {"/opt/x/libnccl-net-cgx.so", "4 bits"},
                                                       {CGX_MEMORY_LIBRARY, "4 bits"},
                                                       {"libnccl-net.so", "off (not named in NCCL_NET_PLUGIN)"},
                                                       {"cgxx", "off (not named in NCCL_NET_PLUGIN)"}};
  for (const auto& [value, expected] : cases) {
    library_.reset();
    if (value != nullptr) setenv("NCCL_NET_PLUGIN", value, 1);
    load();
    EXPECT_EQ(net_->init(nullptr), ncclSuccess);
    EXPECT_EQ(net_->finalize(), ncclSuccess);
    for (int i = 0; i < 3; ++i) {
      EXPECT_EQ(net_->init(), ncclSuccess);
      EXPECT_EQ(net_->finalize(), ncclSuccess);
    }
    const auto lines = Captured::take(NCCL_LOG_INFO);
    ASSERT_EQ(lines.size(), 1U) << value;
    EXPECT_NE(lines[0].find(std::string("compression: ") + expected), std::string::npos) << value << ": " << lines[0];
    EXPECT_NE(lines[0].find("mem0"), std::string::npos);
  }
}

TEST_F(NetLogic, AUserWhoseCollnetIsOffIsToldOnce) {
  setenv("NCCL_NET_PLUGIN", "cgx", 1);
  for (const char* value : {"", "0", "1"}) {
    library_.reset();
    if (*value != '\0') setenv("NCCL_COLLNET_ENABLE", value, 1);
    load();
    ASSERT_EQ(net_->init(), ncclSuccess);
    ASSERT_EQ(net_->finalize(), ncclSuccess);
    ASSERT_EQ(net_->init(), ncclSuccess);
    ASSERT_EQ(net_->finalize(), ncclSuccess);
    const auto warnings = Captured::take(NCCL_LOG_WARN);
    EXPECT_EQ(warnings.size(), *value == '1' ? 0U : 1U) << value;
    for (const std::string& line : warnings) EXPECT_NE(line.find("NCCL_COLLNET_ENABLE=1"), std::string::npos);
  }
}

TEST_F(NetLogic, ABadSettingIsNamedOnceAndNetGoesOn) {
  setenv("CGX_BITS", "%s%n", 1);
  setenv("NCCL_NET_PLUGIN", "cgx", 1);
  ASSERT_EQ(net_->init(), ncclSuccess);
  ASSERT_EQ(net_->finalize(), ncclSuccess);
  ASSERT_EQ(net_->init(), ncclSuccess);
  const auto warnings = Captured::take(NCCL_LOG_WARN);
  ASSERT_EQ(warnings.size(), 1U);
  for (const char* word : {"CGX_BITS", "%s%n", "1..8"})
    EXPECT_NE(warnings[0].find(word), std::string::npos) << warnings[0];
  ASSERT_TRUE(net_->pair(&send_, &recv_));
  disconnect();
}

TEST_F(NetLogic, AForkedChildThatExitsLeavesTheParentsHostAlone) {
  connect();
  const pid_t child = fork();
  if (child == 0) exit(0);  // runs the library's destructor in the child
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  void* sent = send(8);
  EXPECT_TRUE(net_->wait(post(8)));
  EXPECT_TRUE(net_->wait(sent));
  disconnect();
}

}  // namespace
}  // namespace cgx::test
